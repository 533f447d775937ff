"""What the decoder needs beside matrix products; `leeway_engine.kernels` has the ways to do it."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.norm import RmsNorm
from leeway_engine.model.spans import Spans


class Attention(Protocol):
    """Grouped-query attention of one iteration over the paged KV cache."""

    def attend(
        self, layer: int, heads: Tensor, norms: tuple[RmsNorm, RmsNorm] | None, cache: KvCache, attended: Tensor
    ) -> None:
        """Let each token see its request's tokens up to itself, and write `attended`, [tokens, heads x head_dim].

        `heads` holds queries, keys and values, [tokens, (heads + 2 x kv_heads) x head_dim]. Queries and keys are
        normalized, if there are norms for them, and turned by their positions; keys and values are kept in the cache.
        """


class Kernels(Protocol):
    """The small operations of a decoder's layers."""

    name: str
    """For the metrics."""

    def attention(self, spans: Spans) -> Attention:
        """Prepare the attention of an iteration, for all layers."""

    def add_and_normalize(self, residual: Tensor, update: Tensor | None, norm: RmsNorm) -> Tensor:
        """Add an update to the residual stream [tokens, hidden] in place, and return that normalized."""

    def gate(self, gate_up: Tensor) -> Tensor:
        """Return silu(gate) * up, [tokens, intermediate], from each token's gate and, after it, its up."""


@runtime_checkable
class RecordableKernels(Kernels, Protocol):
    """Kernels whose work on decodes hangs on tensors of the device alone, so that it can be recorded and repeated."""

    def decodes(self, start: Tensor, blocks: Tensor, block_size: int) -> Attention:
        """Prepare the attention of a new token of each request, at its position `start`, [requests].

        `blocks` has each request's KV blocks in the order of its tokens, [requests, blocks].
        """
