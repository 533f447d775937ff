"""Bookkeeping of the KV blocks of a pod."""


class BlockPool:
    """Numbers of the blocks that no request holds. A block keeps the keys and values of `block_size` tokens."""

    def __init__(self, total: int, block_size: int) -> None:
        """All blocks are free at first."""
        self.total = total
        self.block_size = block_size
        self._free = list(range(total - 1, -1, -1))

    @property
    def free(self) -> int:
        """How many blocks can be taken."""
        return len(self._free)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks that many tokens fill."""
        return -(-tokens // self.block_size)

    def take(self, count: int) -> list[int]:
        """Take blocks; asking for more than are free is a bug of the scheduler."""
        if count > len(self._free):
            raise AssertionError(f"{count} KV blocks asked for, {len(self._free)} free")
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return taken

    def give_back(self, blocks: list[int]) -> None:
        """Take over all blocks of the list and empty it."""
        self._free.extend(blocks)
        blocks.clear()
