"""A decoder's small operations in Triton, each in one launch; no row knows of its batch mates."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from leeway_engine.kernels.eager import Turns
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.norm import RmsNorm

GATE_COLUMNS = 1024
"""Columns of a program of `gate`."""
WIDE_COLUMNS = 2048
"""From here on a program that has a whole row takes eight warps."""


def add_and_normalize(residual: Tensor, update: Tensor | None, norm: RmsNorm) -> Tensor:
    """Add an update to [tokens, hidden] in place, and return that normalized."""
    rows, size = residual.shape
    normed = torch.empty_like(residual)
    padded = triton.next_power_of_2(size)
    _add_and_normalize[(rows,)](
        *(residual, residual if update is None else update, norm.weight, normed, norm.epsilon),
        size=size,
        padded=padded,
        adds=update is not None,
        num_warps=8 if padded >= WIDE_COLUMNS else 4,
    )
    return normed


def gate(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up, [tokens, intermediate], of [tokens, 2 x intermediate]."""
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    gated = gate_up.new_empty((rows, size))
    _gate[(rows, triton.cdiv(size, GATE_COLUMNS))](gate_up, gated, size, columns=GATE_COLUMNS)
    return gated


class TritonTurns(Turns):
    """Norms, rotation and the way into the cache in one launch."""

    def turn_and_keep(self, layer: int, heads: Tensor, norms: tuple[RmsNorm, RmsNorm] | None, cache: KvCache) -> Tensor:
        """Normalize and turn queries and keys, keep keys and values; returns the queries [tokens, heads, head_dim]."""
        config = self.config
        query_weight, key_weight = (norm.weight for norm in norms) if norms else (heads, heads)
        _turn_and_keep[(len(heads),)](
            *(heads, cache.layer(layer), self.slots, self.cosines, self.sines, query_weight, key_weight),
            *(heads.stride(0), norms[0].epsilon if norms else 0.0),
            heads=config.heads,
            kv_heads=config.kv_heads,
            half=config.head_dim // 2,
            padded_heads=triton.next_power_of_2(config.heads + 2 * config.kv_heads),
            padded=triton.next_power_of_2(config.head_dim // 2),
            normalizes=norms is not None,
        )
        return heads.view(len(heads), -1, config.head_dim)[:, : config.heads]


@triton.jit  # type: ignore[untyped-decorator]  # not typed in Triton
def _add_and_normalize(  # noqa: PLR0917 - a kernel's tensors
    residual: tl.tensor,
    update: tl.tensor,
    weight: tl.tensor,
    normed: tl.tensor,
    epsilon: tl.tensor,
    size: tl.constexpr,
    padded: tl.constexpr,
    adds: tl.constexpr,
) -> None:
    """One row."""
    column = tl.arange(0, padded)
    inside = column < size
    at = tl.program_id(0).to(tl.int64) * size + column
    x = tl.load(residual + at, mask=inside, other=0.0)
    if adds:
        x = x + tl.load(update + at, mask=inside, other=0.0)
        tl.store(residual + at, x, mask=inside)
    wide = x.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / size + epsilon)
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + at, (wide * scale * weights).to(normed.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]  # not typed in Triton
def _gate(gate_up: tl.tensor, gated: tl.tensor, size: tl.tensor, columns: tl.constexpr) -> None:
    """Some columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = column < size
    gates = tl.load(gate_up + row * 2 * size + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * size + size + column, mask=inside, other=0.0)
    opened = (gates / (1.0 + tl.exp(-gates))).to(gated.dtype.element_ty)
    tl.store(gated + row * size + column, opened * up, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]  # not typed in Triton
def _turn_and_keep(  # noqa: PLR0917 - a kernel's tensors
    projected: tl.tensor,
    cache: tl.tensor,
    slots: tl.tensor,
    cosines: tl.tensor,
    sines: tl.tensor,
    query_weight: tl.tensor,
    key_weight: tl.tensor,
    token_stride: tl.tensor,
    epsilon: tl.tensor,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    half: tl.constexpr,
    padded_heads: tl.constexpr,
    padded: tl.constexpr,
    normalizes: tl.constexpr,
) -> None:
    """All heads of one token: queries stay where they are, keys and values go to the cache."""
    token = tl.program_id(0).to(tl.int64)
    head, column = tl.arange(0, padded_heads)[:, None], tl.arange(0, padded)[None, :]
    inside = (head < heads + 2 * kv_heads) & (column < half)
    is_value = head >= heads + kv_heads
    here = projected + token * token_stride + head * 2 * half + column
    first, second = tl.load(here, mask=inside, other=0.0), tl.load(here + half, mask=inside, other=0.0)
    one, other = first.to(tl.float32), second.to(tl.float32)
    if normalizes:
        scale = 1.0 / tl.sqrt((tl.sum(one * one, 1) + tl.sum(other * other, 1)) / (2 * half) + epsilon)[:, None]
        weight = tl.where(head < heads, query_weight, key_weight) + column
        of_first, of_second = tl.load(weight, mask=inside, other=0.0), tl.load(weight + half, mask=inside, other=0.0)
        one = (one * scale * of_first.to(tl.float32)).to(first.dtype).to(tl.float32)
        other = (other * scale * of_second.to(tl.float32)).to(first.dtype).to(tl.float32)
    cosine = tl.load(cosines + token * half + column, mask=column < half, other=0.0).to(tl.float32)
    sine = tl.load(sines + token * half + column, mask=column < half, other=0.0).to(tl.float32)
    turned_first = tl.where(is_value, first, (one * cosine - other * sine).to(first.dtype))
    turned_second = tl.where(is_value, second, (other * cosine + one * sine).to(first.dtype))
    kept = cache + (tl.load(slots + token) * 2 * kv_heads + (head - heads)) * 2 * half + column
    to = tl.where(head < heads, here, kept)
    tl.store(to, turned_first, mask=inside)
    tl.store(to + half, turned_second, mask=inside)
