"""Bookkeeping of the KV blocks of a pod."""

from collections import OrderedDict
from collections.abc import Collection, Iterable


class BlockPool:
    """Numbers of KV blocks, and how many requests hold each. A block keeps the keys and values of `block_size` tokens.

    A full block can be published under the key of its tokens, for others to hold it too. With no holder left it counts
    as free but stays published: it is taken only when no unpublished one is free, the longest unused first.
    """

    def __init__(self, total: int, block_size: int) -> None:
        """All blocks are free at first."""
        self.total = total
        self.block_size = block_size
        self._holders = [0] * total
        self._keys: list[bytes | None] = [None] * total
        self._published: dict[bytes, int] = {}
        self._empty = list(range(total - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._unproven: list[int] = []
        self.changes = 0
        """How often what can be found may have changed."""

    @property
    def free(self) -> int:
        """How many blocks can be taken: those that nobody holds."""
        return len(self._empty) + len(self._cached)

    @property
    def cached(self) -> int:
        """How many of the free blocks are published."""
        return len(self._cached)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks that many tokens fill."""
        return -(-tokens // self.block_size)

    def take(self, count: int) -> list[int]:
        """Take blocks for a single holder; asking for more than are free is a bug of the scheduler."""
        empty = self._empty
        lacking = count - len(empty)
        if lacking > len(self._cached):
            raise AssertionError(f"{count} KV blocks asked for, {self.free} free")
        if lacking > 0:
            taken = [*empty, *self._evict(lacking)]
            empty.clear()
        else:
            kept = -lacking
            taken = empty[kept:]
            del empty[kept:]
        for block in taken:
            self._holders[block] = 1
        return taken

    def give_back(self, blocks: list[int]) -> None:
        """Let go of all blocks of the list and empty it; letting go of a free one is a bug of the scheduler."""
        holders, keys, empty, cached = self._holders, self._keys, self._empty, self._cached
        # From the last on, so that of a chain of blocks the end, which is of no use without the rest, is evicted first.
        for block in reversed(blocks):
            left = holders[block] = holders[block] - 1
            if left > 0:
                continue
            if left < 0:
                raise AssertionError(f"KV block {block} was given back more often than taken")
            if keys[block] is None:
                empty.append(block)
            else:
                cached[block] = None
        blocks.clear()

    def publish(self, blocks: list[int], keys: list[bytes], places: Iterable[int]) -> None:
        """Let others find held blocks at these places, full of computed tokens, by the keys at the same.

        One whose key is taken already stays private.
        """
        own, published = self._keys, self._published
        self.changes += 1
        for place in places:
            block, key = blocks[place], keys[place]
            if own[block] is None and key not in published:
                own[block] = key
                published[key] = block
                self._unproven.append(block)

    def prove(self) -> None:
        """Note that all blocks published so far hold what they are to hold."""
        self._unproven.clear()

    def withdraw(self) -> None:
        """Take back what was published since `prove`, as it was not computed after all; who holds it still does."""
        for block in self._unproven:
            if self._keys[block] is None:
                continue  # taken by another since
            self._unpublish((block,))
            if block in self._cached:
                del self._cached[block]
                self._empty.append(block)
        self._unproven.clear()

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """Blocks published under the first of these keys, up to the first key that is not known."""
        found = []
        for key in keys:
            block = self._published.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def hold(self, blocks: Iterable[int]) -> None:
        """Become a further holder of blocks that were found."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._cached[block]
            self._holders[block] += 1

    def touch(self, block: int) -> None:
        """Count a published block as used just now."""
        if block in self._cached:
            self._cached.move_to_end(block)

    def unheld(self, blocks: Collection[int]) -> int:
        """How many of these blocks are free."""
        return list(map(self._holders.__getitem__, blocks)).count(0)

    def held_once(self, blocks: Iterable[int]) -> int:
        """How many of these held blocks would be free without one of their holders."""
        return list(map(self._holders.__getitem__, blocks)).count(1)

    def shared(self, blocks: Iterable[int]) -> int:
        """How many of the first of these held blocks have other holders too, up to one that has none.

        What is shared is a prefix: behind blocks that two requests computed at the same time none is looked for.
        """
        count, holders = 0, self._holders
        for block in blocks:
            if holders[block] < 2:
                break
            count += 1
        return count

    def _evict(self, count: int) -> list[int]:
        take_oldest = self._cached.popitem
        blocks = [take_oldest(last=False)[0] for _ in range(count)]
        self._unpublish(blocks)
        return blocks

    def _unpublish(self, blocks: Iterable[int]) -> None:
        keys, published = self._keys, self._published
        self.changes += 1
        for block in blocks:
            key = keys[block]
            assert key is not None, "only what was published can be taken back"
            del published[key]
            keys[block] = None
