"""Attention by its formula, in float64 and one token at a time, for kernels to be compared with."""

from dataclasses import dataclass

import numpy as np
import torch
from leeway_engine.model.config import ModelConfig
from leeway_engine.model.kernels import Kernels
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.norm import RmsNorm
from leeway_engine.model.rope import rotary_tables
from leeway_engine.model.spans import Spans
from torch import Tensor

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
LAYERS = 2


@dataclass(frozen=True, slots=True)
class Shape:
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    block_size: int = 16
    qk_norm: bool = False


def config(shape: Shape) -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        vocabulary=50,
        hidden=48,
        intermediate=80,
        layers=LAYERS,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        context=2048,
        norm_epsilon=1e-5,
        rope_theta=1e4,
        rope_scaling=None,
        tied_embeddings=True,
        qkv_bias=False,
        output_bias=False,
        qk_norm=shape.qk_norm,
    )


def norm(size: int, dtype: torch.dtype) -> RmsNorm:
    made = RmsNorm(size, 1e-5).to(dtype).requires_grad_(False)
    made.weight.normal_(1, 0.2)
    return made


def naive_norm(x: Tensor, weights: RmsNorm) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + weights.epsilon).sqrt() * weights.weight.double()


def naive_turn(x: Tensor, position: int, model: ModelConfig, dtype: torch.dtype) -> Tensor:
    cosine, sine = (table[position].to(dtype).double() for table in rotary_tables(model, model.context))
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def naive_attention(queries: Tensor, keys: Tensor, values: Tensor, heads_per_kv_head: int) -> Tensor:
    """One query token [heads, head_dim] over keys and values [keys, kv_heads, head_dim], in float64."""
    keys, values = (x.repeat_interleave(heads_per_kv_head, 1) for x in (keys, values))
    scores = torch.einsum("hd,khd->hk", queries, keys) / queries.shape[-1] ** 0.5
    return torch.einsum("hk,khd->hd", scores.softmax(-1), values)


def compare_attention(
    kernels: Kernels, model: ModelConfig, dtype: torch.dtype, block_size: int, cases: list[tuple[int, int]]
) -> None:
    """Attend for requests of (tokens in KV, new tokens), and look at every output and every key and value kept."""
    torch.manual_seed(0)
    width = model.heads + 2 * model.kv_heads
    blocks_each = -(-max(start + count for start, count in cases) // block_size)
    rows = len(cases) + 2
    blocks = np.random.default_rng(0).permutation(rows * blocks_each).reshape(rows, blocks_each)
    row = np.random.default_rng(1).permutation(rows)[: len(cases)]
    start, count = np.array(cases).T.copy()
    spans = Spans(start, count, row, blocks, block_size)
    cache = KvCache(model, rows * blocks_each, block_size, dtype, "cpu")
    cache.layer(1).normal_()
    heads = torch.randn(int(count.sum()), width * model.head_dim).to(dtype)
    norms = (norm(model.head_dim, dtype), norm(model.head_dim, dtype)) if model.qk_norm else None

    expected, kept = [], cache.layer(1).clone()
    for place, (owner, position, slot) in enumerate(zip(spans.owner, spans.position, spans.slot, strict=True)):
        queries, keys, values = (
            heads[place].view(width, -1).double().split((model.heads, model.kv_heads, model.kv_heads))
        )
        if norms is not None:
            queries, keys = (naive_norm(x, n).to(dtype).double() for x, n in zip((queries, keys), norms, strict=True))
        queries, keys = (naive_turn(x, position, model, dtype).to(dtype).double() for x in (queries, keys))
        kept[slot] = torch.stack((keys, values)).to(dtype)
        slots = (blocks[owner][:, None] * block_size + np.arange(block_size)).ravel()[: position + 1]
        seen = kept[slots].double()
        expected.append(naive_attention(queries, seen[:, 0], seen[:, 1], model.heads // model.kv_heads).flatten())

    got = heads.new_empty((len(heads), model.heads * model.head_dim))
    kernels.attention(spans).attend(1, heads.clone(), norms, cache, got)
    torch.testing.assert_close(got.double(), torch.stack(expected), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    torch.testing.assert_close(cache.layer(1), kept, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert not cache.layer(0).any()


MIXED = [(0, 1), (33, 1), (0, 17), (15, 40), (200, 1), (63, 2)]
SHAPES = {
    "SmolLM2": Shape(),
    "no sharing, wide heads": Shape(heads=2, kv_heads=2, head_dim=128),
    "one KV head, many queries": Shape(heads=40, kv_heads=1, head_dim=32),
    "odd head size": Shape(heads=4, kv_heads=2, head_dim=20),
    "tiny heads, norms": Shape(heads=4, kv_heads=2, head_dim=6, qk_norm=True),
    "norms": Shape(heads=4, kv_heads=2, head_dim=80, qk_norm=True),
    "blocks of one token": Shape(heads=2, kv_heads=1, head_dim=16, block_size=1),
    "odd blocks": Shape(heads=2, kv_heads=1, head_dim=16, block_size=7),
    "large blocks": Shape(heads=2, kv_heads=1, head_dim=16, block_size=128),
}
