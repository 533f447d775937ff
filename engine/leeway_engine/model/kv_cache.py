"""Keys and values of all requests, in blocks."""

import torch
from torch import Tensor

from leeway_engine.model.config import ModelConfig


class KvCache:
    """One tensor [layers, blocks x block_size, 2, kv_heads, head_dim]: a token's key and value lie side by side."""

    def __init__(self, config: ModelConfig, blocks: int, block_size: int, dtype: torch.dtype, device: str) -> None:
        """Zeros, so that padding never brings in a NaN."""
        heads = (2, config.kv_heads, config.head_dim)
        self.block_size = block_size
        self._slots = torch.zeros((config.layers, blocks * block_size, *heads), dtype=dtype, device=device)
        self._blocks = self._slots.view(config.layers, blocks, block_size, *heads)
        self._gathered = torch.empty((0, block_size, *heads), dtype=dtype, device=device)

    def layer(self, layer: int) -> Tensor:
        """Keys and values of one layer, [blocks x block_size, 2, kv_heads, head_dim]."""
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
