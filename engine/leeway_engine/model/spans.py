"""The new tokens of an iteration, by request."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """`count` new tokens of each request from its position `start` on, one span after another in the batch."""

    start: Ints
    count: Ints
    row: Ints
    """Row of each request in the block table."""
    blocks: Ints
    """Block table: KV blocks of each running request in the order of its tokens, [rows, blocks of a whole context]."""
    block_size: int

    @property
    def end(self) -> Ints:
        """One past the position of the last new token."""
        return self.start + self.count

    @property
    def first(self) -> Ints:
        """Place in the batch of each span's first token."""
        return np.cumsum(self.count) - self.count

    @property
    def owner(self) -> Ints:
        """Row of each new token's request."""
        return np.repeat(self.row, self.count)

    @property
    def position(self) -> Ints:
        """Position of each new token in its request."""
        return np.arange(self.count.sum()) + np.repeat(self.start - self.first, self.count)

    @property
    def slot(self) -> Ints:
        """Place in the KV cache of each new token."""
        block, offset = np.divmod(self.position, self.block_size)
        return self.blocks[self.owner, block] * self.block_size + offset
