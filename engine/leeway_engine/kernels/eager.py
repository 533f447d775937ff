"""The kernels in plain torch, for any device and type; they stand in where others cannot be had."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from leeway_engine.model.config import ModelConfig
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.norm import RmsNorm
from leeway_engine.model.rope import rotate
from leeway_engine.model.spans import Ints, Spans


@dataclass(frozen=True, slots=True)
class _Group:
    """Requests whose new tokens and contexts are padded to one shape: `requests` rows of `queries` tokens."""

    queries: Tensor
    """Index in the batch of each new token, [requests, queries]. Padding repeats a row's last token."""
    outputs: Tensor
    """Places of the true tokens among all [requests x queries]."""
    tokens: Tensor
    """Index in the batch of these true tokens."""
    blocks: Tensor
    """KV blocks of all rows, [requests x blocks per row]."""
    mask: Tensor
    """0 where a query sees a key and -inf elsewhere, [requests, 1, queries x heads per KV head, keys]."""


class EagerKernels:
    """Torch's own operations, one after another."""

    name = "eager"

    def __init__(self, config: ModelConfig, cosines: Tensor, sines: Tensor) -> None:
        """Take the decoder's rotary tables, which are on its device and of its type."""
        self._config = config
        self._cosines = cosines
        self._sines = sines

    def attention(self, spans: Spans) -> "EagerAttention":
        """Pad requests of similar shape to groups."""
        return EagerAttention(self._config, self.turns(spans), spans)

    def turns(self, spans: Spans) -> "Turns":
        """Look up the angles and the slots of the new tokens."""
        return self.turns_at(upload(spans.position, self._cosines), upload(spans.slot, self._cosines))

    def turns_at(self, position: Tensor, slots: Tensor) -> "Turns":
        """Look up the angles of new tokens at these positions, [tokens]."""
        cosines, sines = (table[position].unsqueeze(1) for table in (self._cosines, self._sines))
        return Turns(self._config, cosines, sines, slots)

    def add_and_normalize(self, residual: Tensor, update: Tensor | None, norm: RmsNorm) -> Tensor:
        """Add an update to the residual stream in place, and return that normalized."""
        if update is not None:
            residual += update
        return _normalize(residual, norm)

    def gate(self, gate_up: Tensor) -> Tensor:
        """Return silu(gate) * up."""
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate) * up


@dataclass(frozen=True, slots=True)
class Turns:
    """Angles and slots of an iteration's new tokens."""

    config: ModelConfig
    cosines: Tensor
    """[tokens, 1, head_dim / 2]"""
    sines: Tensor
    slots: Tensor

    def turn_and_keep(self, layer: int, heads: Tensor, norms: tuple[RmsNorm, RmsNorm] | None, cache: KvCache) -> Tensor:
        """Normalize and turn queries and keys, keep keys and values; returns the queries [tokens, heads, head_dim]."""
        config = self.config
        heads = heads.view(len(heads), -1, config.head_dim)
        turned = heads[:, : config.heads + config.kv_heads]
        queries, keys = turned[:, : config.heads], turned[:, config.heads :]
        if norms is not None:
            for part, norm in zip((queries, keys), norms, strict=True):
                part.copy_(_normalize(part, norm))
        rotate(turned, self.cosines, self.sines)
        cache.write(layer, self.slots, heads[:, config.heads :].view(len(heads), 2, config.kv_heads, config.head_dim))
        return queries


class EagerAttention:
    """The attention of one iteration, a padded group at a time."""

    def __init__(self, config: ModelConfig, turns: "Turns", spans: Spans) -> None:
        """`turns` brings queries, keys and values to their places."""
        self._config = config
        self._turns = turns
        # Padding at most doubles the work where spans of a group agree in the bits of length and of context.
        shape = np.frexp(spans.count)[1] * 64 + np.frexp(-(-spans.end // spans.block_size))[1]
        members = [np.flatnonzero(shape == value) for value in np.unique(shape)]
        self._groups = [_group(spans, some, config.heads // config.kv_heads, turns.cosines) for some in members]

    def attend(
        self, layer: int, heads: Tensor, norms: tuple[RmsNorm, RmsNorm] | None, cache: KvCache, attended: Tensor
    ) -> None:
        """Turn, keep, attend."""
        queries = self._turns.turn_and_keep(layer, heads, norms, cache)
        for group in self._groups:
            attended[group.tokens] = self._attend(layer, queries, group, cache)

    def _attend(self, layer: int, queries: Tensor, group: _Group, cache: KvCache) -> Tensor:
        config = self._config
        requests, length = group.queries.shape
        keys, values = cache.read(layer, group.blocks, requests)
        # The query heads that share a KV head become further queries of it, so no key is copied for each of them.
        shared = config.heads // config.kv_heads
        padded = queries[group.queries].view(requests, length, config.kv_heads, shared, config.head_dim).transpose(1, 2)
        padded = padded.reshape(requests, config.kv_heads, length * shared, config.head_dim)
        attended = functional.scaled_dot_product_attention(padded, keys, values, attn_mask=group.mask)
        attended = attended.view(requests, config.kv_heads, length, shared, config.head_dim).transpose(1, 2)
        return attended.reshape(requests * length, config.heads * config.head_dim)[group.outputs]


def _normalize(x: Tensor, norm: RmsNorm) -> Tensor:
    return functional.rms_norm(x, norm.weight.shape, norm.weight, norm.epsilon)


def upload(array: NDArray[np.generic], like: Tensor) -> Tensor:
    """Copy an array to where a tensor is."""
    return torch.from_numpy(array).to(like.device, non_blocking=True)


def _group(spans: Spans, members: Ints, heads_per_kv_head: int, like: Tensor) -> _Group:
    start, count, end = spans.start[members], spans.count[members], spans.end[members]
    length = np.arange(count.max())
    within = np.minimum(length, count[:, None] - 1)
    true = length < count[:, None]
    queries = spans.first[members][:, None] + within
    blocks = spans.blocks[spans.row[members], : -(-end.max() // spans.block_size)]
    seen = upload(np.repeat(start[:, None] + within, heads_per_kv_head, axis=1), like)
    keys = torch.arange(blocks.shape[1] * spans.block_size, device=like.device)
    mask = torch.zeros((), dtype=like.dtype, device=like.device).where(keys <= seen[:, None, :, None], -torch.inf)
    return _Group(
        queries=upload(queries, like),
        outputs=upload(np.flatnonzero(true), like),
        tokens=upload(queries[true], like),
        blocks=upload(blocks.ravel(), like),
        mask=mask,
    )
