"""Blocks copied on the device, out to the host and in again hold what one copy after the other would leave."""

from itertools import groupby

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_engine.model.config import ModelConfig
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.scheduling.move import Move, Way

BLOCKS, SWAP_BLOCKS, SIZE = 5, 3, 2
CONFIG = ModelConfig(
    architecture="llama",
    vocabulary=7,
    hidden=8,
    intermediate=8,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=3,
    context=64,
    norm_epsilon=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    tied_embeddings=True,
    qkv_bias=False,
    output_bias=False,
    qk_norm=False,
)


@st.composite
def runs(draw: st.DrawFn) -> list[Move]:
    """Moves of one way: no block is written twice, and none is read that was written."""
    way = draw(st.sampled_from(Way))
    sources = range(SWAP_BLOCKS if way is Way.IN else BLOCKS)
    targets = range(SWAP_BLOCKS if way is Way.OUT else BLOCKS)
    written = draw(st.lists(st.sampled_from(targets), unique=True, min_size=1, max_size=SWAP_BLOCKS))
    read = [block for block in sources if way is not Way.COPY or block not in written]
    return [Move(way, draw(st.sampled_from(read)), target) for target in written]


def write(cache: KvCache, block: int, value: float) -> None:
    slots = torch.arange(block * SIZE, block * SIZE + SIZE)
    for layer in range(CONFIG.layers):
        cache.write(layer, slots, torch.full((SIZE, 2, 1, 3), value + layer / 10, dtype=torch.float64))


def read(cache: KvCache) -> list[list[float]]:
    """What each block holds in each layer; all its values must be the same."""
    layers = []
    for layer in range(CONFIG.layers):
        keys, values = cache.read(layer, torch.arange(BLOCKS), BLOCKS)
        both = torch.cat([keys.flatten(1), values.flatten(1)], dim=1)
        assert (both == both[:, :1]).all()
        layers.append([round(value, 3) for value in both[:, 0].tolist()])
    return layers


@settings(max_examples=60)
@given(parts=st.lists(runs(), max_size=6))
def test_moves_are_done_in_their_order(parts: list[list[Move]]) -> None:
    cache = KvCache(CONFIG, BLOCKS, SIZE, torch.float64, "cpu", swap_blocks=SWAP_BLOCKS)
    device = [float(block) for block in range(BLOCKS)]
    host = [float(block + 10) for block in range(SWAP_BLOCKS)]
    for block in range(SWAP_BLOCKS):
        write(cache, block, host[block])
    cache.move([Move(Way.OUT, block, block) for block in range(SWAP_BLOCKS)])
    for block in range(BLOCKS):
        write(cache, block, device[block])
    moves = [move for _, same_way in groupby(parts, key=lambda part: part[0].way) for move in next(same_way)]
    cache.move(moves)
    for way, source, target in moves:
        (host if way is Way.OUT else device)[target] = (host if way is Way.IN else device)[source]
    assert read(cache) == [[value + layer / 10 for value in device] for layer in range(CONFIG.layers)]
