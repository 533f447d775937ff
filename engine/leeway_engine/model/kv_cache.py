"""Keys and values of all requests, in blocks."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from leeway_engine.model.config import ModelConfig
from leeway_engine.scheduling.move import Move, Way


class KvCache:
    """One tensor [layers, (blocks + 1) x block_size, 2, kv_heads, head_dim]: a token's key and value lie together."""

    def __init__(
        self,
        config: ModelConfig,
        blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: str,
        *,
        swap_blocks: int = 0,
    ) -> None:
        """Zeros, so that padding never brings in a NaN; and room in host memory for blocks that are swapped out.

        All of it is written once, so that a pod with too little memory fails when it starts and not under load.
        """
        heads = (2, config.kv_heads, config.head_dim)
        self.block_size = block_size
        self.padding_block = blocks
        """A block more, which takes what padding writes."""
        self._slots = torch.zeros((config.layers, (blocks + 1) * block_size, *heads), dtype=dtype, device=device)
        self._blocks = self._slots.view(config.layers, blocks + 1, block_size, *heads)
        self._swapped = torch.zeros((config.layers, swap_blocks, block_size, *heads), dtype=dtype)
        self._gathered = torch.empty((0, block_size, *heads), dtype=dtype, device=device)

    def move(self, moves: Sequence[Move]) -> None:
        """Copy whole blocks, of all layers, in the order of the moves."""
        memories = {
            Way.COPY: (self._blocks, self._blocks),
            Way.OUT: (self._blocks, self._swapped),
            Way.IN: (self._swapped, self._blocks),
        }
        for way, group in groupby(moves, key=lambda move: move.way):
            source, target = memories[way]
            pairs = torch.tensor([(move.source, move.target) for move in group])
            # Read as a whole before any is written, and written before this returns: later moves may reuse the blocks.
            read = source.index_select(1, pairs[:, 0].to(source.device)).to(target.device)
            target.index_copy_(1, pairs[:, 1].to(target.device), read)

    def layer(self, layer: int) -> Tensor:
        """Keys and values of one layer, [(blocks + 1) x block_size, 2, kv_heads, head_dim]."""
        return self._slots[layer]

    def write(self, layer: int, slots: Tensor, keys_values: Tensor) -> None:
        """Keep [tokens, 2, kv_heads, head_dim]."""
        self._slots[layer].index_copy_(0, slots, keys_values)

    def read(self, layer: int, blocks: Tensor, requests: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the requests' blocks, each [requests, kv_heads, keys, head_dim], until the next read."""
        if len(self._gathered) < len(blocks):
            self._gathered = self._gathered.new_empty((len(blocks), *self._gathered.shape[1:]))
        gathered = self._gathered[: len(blocks)]
        torch.index_select(self._blocks[layer], 0, blocks, out=gathered)
        keys, values = gathered.view(requests, -1, *gathered.shape[2:]).transpose(1, 3).unbind(2)
        return keys, values
