"""The kernels for GPUs, in Triton; a decode's keys are shared out among several programs (split-KV)."""

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from leeway_engine.kernels import triton_rows
from leeway_engine.kernels.eager import EagerKernels, Turns, upload
from leeway_engine.model.config import ModelConfig
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.norm import RmsNorm
from leeway_engine.model.spans import Spans

TILE_ROWS = 32
"""Query rows of a program: new tokens times the query heads that share a KV head. A matrix unit takes 16 or more."""
TILE_KEYS = 64
DECODE_SPLITS = 8
"""Programs that share the keys of a request where all requests have one new token."""


@dataclass(frozen=True, slots=True)
class _Tiles:
    """How the new tokens are cut up for programs, and where the keys of their requests lie."""

    request: Tensor
    """Of each tile."""
    token: Tensor
    """First one of each tile, counted from its request's first new token."""
    start: Tensor
    """Position of each request's first new token."""
    first: Tensor
    """Place in the batch of each request's first new token, and their number."""
    blocks: Tensor
    """KV blocks of each request, [requests, blocks]."""
    block_size: int
    splits: int


class TritonKernels(EagerKernels):
    """Small operations of one launch each, and an attention that reads the cache through the block table."""

    name = "triton"
    add_and_normalize = staticmethod(triton_rows.add_and_normalize)
    gate = staticmethod(triton_rows.gate)

    def turns_at(self, position: Tensor, slots: Tensor) -> Turns:
        """Look up the angles of new tokens at these positions, [tokens]."""
        cosines, sines = (table[position] for table in (self._cosines, self._sines))
        return triton_rows.TritonTurns(self._config, cosines, sines, slots)

    def attention(self, spans: Spans) -> "TritonAttention":  # type: ignore[override]  # a narrower answer
        """Cut the spans into tiles."""
        count = -(-spans.count // _tile_tokens(self._config))
        request = np.repeat(np.arange(len(count)), count)
        number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        used = -(-spans.end.max() // spans.block_size)
        tile_request, token, start, first, blocks = (
            upload(np.ascontiguousarray(array), self._cosines)
            for array in (
                request,
                number * _tile_tokens(self._config),
                spans.start,
                np.append(0, np.cumsum(spans.count)),
                spans.blocks[spans.row, :used],
            )
        )
        splits = DECODE_SPLITS if spans.count.max() == 1 else 1
        tiles = _Tiles(tile_request, token, start, first, blocks, spans.block_size, splits)
        return TritonAttention(self._config, self.turns(spans), tiles)

    def decodes(self, start: Tensor, blocks: Tensor, block_size: int) -> "TritonAttention":
        """Make a tile of each token, on the device."""
        first = torch.arange(len(start) + 1, device=start.device)
        block = blocks.gather(1, (start // block_size)[:, None])[:, 0]
        turns = self.turns_at(start, block * block_size + start % block_size)
        tiles = _Tiles(first[:-1], torch.zeros_like(start), start, first, blocks, block_size, DECODE_SPLITS)
        return TritonAttention(self._config, turns, tiles)


def _tile_rows(config: ModelConfig) -> int:
    rows: int = max(TILE_ROWS, triton.next_power_of_2(config.heads // config.kv_heads))
    return rows


def _tile_tokens(config: ModelConfig) -> int:
    return _tile_rows(config) // (config.heads // config.kv_heads)


class TritonAttention:
    """The attention of one iteration: one launch for prefills and decodes, a second one where keys were shared out."""

    def __init__(self, config: ModelConfig, turns: Turns, tiles: _Tiles) -> None:
        """`turns` brings queries, keys and values to their places."""
        self._config = config
        self._turns = turns
        self._tiles = tiles

    def attend(
        self, layer: int, heads: Tensor, norms: tuple[RmsNorm, RmsNorm] | None, cache: KvCache, attended: Tensor
    ) -> None:
        """Turn, keep, attend."""
        config, tiles = self._config, self._tiles
        splits = tiles.splits
        queries = self._turns.turn_and_keep(layer, heads, norms, cache)
        rows = len(heads) * config.heads
        shared = rows if splits > 1 else 0
        sums, tops, weights = (
            heads.new_empty(shape, dtype=torch.float32)
            for shape in ((shared, splits, config.head_dim), (shared, splits), (shared, splits))
        )
        padded_dim = max(16, triton.next_power_of_2(config.head_dim))
        _attend[(len(tiles.request), config.kv_heads, splits)](
            *(queries, cache.layer(layer), attended, sums, tops, weights),
            *(tiles.request, tiles.token, tiles.start, tiles.first, tiles.blocks),
            *(queries.stride(0), tiles.blocks.stride(0), config.head_dim**-0.5),
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            padded_dim=padded_dim,
            block_size=tiles.block_size,
            tile_tokens=_tile_tokens(config),
            tile_rows=_tile_rows(config),
            tile_keys=TILE_KEYS,
            splits=splits,
        )
        if shared:
            _join[(rows,)](
                sums, tops, weights, attended, head_dim=config.head_dim, padded_dim=padded_dim, splits=splits
            )


@triton.jit  # type: ignore[untyped-decorator]  # not typed in Triton
def _attend(  # noqa: PLR0917 - a kernel's tensors
    queries: tl.tensor,
    cache: tl.tensor,
    attended: tl.tensor,
    part_sums: tl.tensor,
    part_tops: tl.tensor,
    part_weights: tl.tensor,
    tile_request: tl.tensor,
    tile_token: tl.tensor,
    starts: tl.tensor,
    firsts: tl.tensor,
    blocks: tl.tensor,
    token_stride: tl.tensor,
    blocks_stride: tl.tensor,
    scale: tl.tensor,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    block_size: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_keys: tl.constexpr,
    splits: tl.constexpr,
) -> None:
    """Online softmax over one split of the keys, for the rows of one tile and one KV head."""
    kv_head, split = tl.program_id(1), tl.program_id(2)
    request = tl.load(tile_request + tl.program_id(0))
    tile_first = tl.load(tile_token + tl.program_id(0))
    start, first = tl.load(starts + request), tl.load(firsts + request)
    count = tl.load(firsts + request + 1) - first
    group: tl.constexpr = heads // kv_heads

    row = tl.arange(0, tile_rows)
    token = tile_first + row // group
    head = kv_head * group + row % group
    real = (row < tile_tokens * group) & (token < count)
    column = tl.arange(0, padded_dim)
    inside = column < head_dim
    query_at = queries + (first + token)[:, None] * token_stride + head[:, None] * head_dim + column[None, :]
    query = tl.load(query_at, mask=real[:, None] & inside[None, :], other=0.0)

    seen = start + tl.minimum(count, tile_first + tile_tokens)
    # How the keys are shared out hangs on the request alone, so its batch mates change nothing.
    share = tl.cdiv(tl.cdiv(seen, splits), tile_keys) * tile_keys
    end = tl.minimum(seen, (split + 1) * share)
    top = tl.full((tile_rows,), float("-inf"), tl.float32)
    weight = tl.zeros((tile_rows,), tl.float32)
    sums = tl.zeros((tile_rows, padded_dim), tl.float32)
    for begin in range(split * share, end, tile_keys):
        key = begin + tl.arange(0, tile_keys)
        block = tl.load(blocks + request * blocks_stride + key // block_size, mask=key < end, other=0)
        slot = block * block_size + key % block_size
        key_at = cache + ((slot * 2 * kv_heads + kv_head) * head_dim)[:, None] + column[None, :]
        here = (key < end)[:, None] & inside[None, :]
        keys = tl.load(key_at, mask=here, other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        visible = (key[None, :] <= (start + token)[:, None]) & (key < end)[None, :]
        scores = tl.where(visible, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        likely = tl.exp(scores - base[:, None])
        keep = tl.exp(top - base)
        values = tl.load(key_at + kv_heads * head_dim, mask=here, other=0.0)
        sums = sums * keep[:, None] + tl.dot(likely.to(values.dtype), values, input_precision="ieee")
        weight = weight * keep + tl.sum(likely, 1)
        top = new_top

    place = (first + token) * heads + head
    to = real[:, None] & inside[None, :]
    if splits == 1:
        result = sums / weight[:, None]
        tl.store(attended + place[:, None] * head_dim + column[None, :], result.to(attended.dtype.element_ty), mask=to)
    else:
        part = place * splits + split
        tl.store(part_sums + part[:, None] * head_dim + column[None, :], sums, mask=to)
        tl.store(part_tops + part, top, mask=real)
        tl.store(part_weights + part, weight, mask=real)


@triton.jit  # type: ignore[untyped-decorator]  # not typed in Triton
def _join(  # noqa: PLR0917 - a kernel's tensors
    part_sums: tl.tensor,
    part_tops: tl.tensor,
    part_weights: tl.tensor,
    attended: tl.tensor,
    head_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    splits: tl.constexpr,
) -> None:
    """Add up the splits of one query head."""
    row = tl.program_id(0)
    part = row * splits + tl.arange(0, splits)
    column = tl.arange(0, padded_dim)
    inside = column < head_dim
    tops, weights = tl.load(part_tops + part), tl.load(part_weights + part)
    factors = tl.exp(tops - tl.max(tops, 0))
    sums = tl.load(part_sums + part[:, None] * head_dim + column[None, :], mask=inside[None, :], other=0.0)
    result = tl.sum(sums * factors[:, None], 0) / tl.sum(weights * factors, 0)
    tl.store(attended + row * head_dim + column, result.to(attended.dtype.element_ty), mask=inside)
