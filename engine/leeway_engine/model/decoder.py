"""A decoder-only transformer: Llama, Qwen2 and Qwen3 differ by its configuration alone."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leeway_engine.model.batch import Batch
from leeway_engine.model.config import ModelConfig
from leeway_engine.model.kernels import Kernels
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.norm import RmsNorm
from leeway_engine.model.rope import rotary_tables
from leeway_engine.model.row_counts import padded_rows


@dataclass(frozen=True, slots=True)
class _Pass:
    """What all layers of a forward pass share."""

    batch: Batch
    cache: KvCache
    kernels: Kernels
    attended: Tensor
    """Takes what each attention gives, [rows, heads x head_dim]; rows of padding are zeros, as none writes them."""


class Attention(nn.Module):
    """Grouped-query attention over the paged KV cache."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        """Queries, keys and values come from one projection."""
        super().__init__()
        self.layer = layer
        outputs = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.qkv = nn.Linear(config.hidden, outputs, bias=config.qkv_bias)
        self.output = nn.Linear(config.heads * config.head_dim, config.hidden, bias=config.output_bias)
        if config.qk_norm:
            self.query_norm = RmsNorm(config.head_dim, config.norm_epsilon)
            self.key_norm = RmsNorm(config.head_dim, config.norm_epsilon)
        self.qk_norm = config.qk_norm

    def forward(self, x: Tensor, shared: _Pass) -> Tensor:
        """Let each token see its request's tokens up to itself."""
        norms = (self.query_norm, self.key_norm) if self.qk_norm else None
        tokens, attended = len(shared.batch.token_ids), shared.attended
        shared.batch.attention.attend(self.layer, self.qkv(x)[:tokens], norms, shared.cache, attended[:tokens])
        return self.output(attended)  # type: ignore[no-any-return]  # modules return Any


class FeedForward(nn.Module):
    """The gated feed-forward block."""

    def __init__(self, config: ModelConfig) -> None:
        """Gate and value come from one projection."""
        super().__init__()
        self.gate_up = nn.Linear(config.hidden, 2 * config.intermediate, bias=False)
        self.down = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: Tensor, kernels: Kernels) -> Tensor:
        """Transform each token by itself."""
        return self.down(kernels.gate(self.gate_up(x)))  # type: ignore[no-any-return]  # modules return Any


class Layer(nn.Module):
    """Attention and feed-forward, each with its norm and a way around it."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        """`layer` is its place, from 0."""
        super().__init__()
        self.attention_norm = RmsNorm(config.hidden, config.norm_epsilon)
        self.attention = Attention(config, layer)
        self.feed_forward_norm = RmsNorm(config.hidden, config.norm_epsilon)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, update: Tensor | None, shared: _Pass) -> Tensor:
        """Take the last update into the residual stream, in place, and return the next one."""
        kernels = shared.kernels
        attended = self.attention(kernels.add_and_normalize(x, update, self.attention_norm), shared)
        normed = kernels.add_and_normalize(x, attended, self.feed_forward_norm)
        return self.feed_forward(normed, kernels)  # type: ignore[no-any-return]  # modules return Any


class Decoder(nn.Module):
    """The whole model, from token ids to logits."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, config: ModelConfig) -> None:
        """Weights are to be loaded."""
        super().__init__()
        self.config = config
        self.pads_rows = False
        """Whether all products get one of few numbers of rows."""
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config, layer) for layer in range(config.layers))
        self.norm = RmsNorm(config.hidden, config.norm_epsilon)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        if config.tied_embeddings:
            self.head.weight = self.embedding.weight
        cosines, sines = rotary_tables(config, config.context)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: KvCache, kernels: Kernels) -> Tensor:
        """Write the batch's keys and values and return the logits of its sampled tokens."""
        x = self.embedding(self._pad(batch.token_ids))
        attended = x.new_zeros((len(x), self.config.heads * self.config.head_dim))
        shared = _Pass(batch, cache, kernels, attended)
        update = None
        for layer in self.layers:
            update = layer(x, update, shared)
        assert update is not None
        sampled = self._pad(batch.sampled)
        logits = self.head(kernels.add_and_normalize(x[sampled], update[sampled], self.norm))
        return logits[: len(batch.sampled)]  # type: ignore[no-any-return]  # modules return Any

    def _pad(self, indices: Tensor) -> Tensor:
        """Add zeros for rows that nobody reads."""
        if not self.pads_rows:
            return indices
        return functional.pad(indices, (0, padded_rows(len(indices)) - len(indices)))
