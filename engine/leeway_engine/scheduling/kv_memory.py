"""Which KV blocks each request holds, on the device and swapped out to the host."""

from itertools import islice

from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.move import Move, Way
from leeway_engine.scheduling.output_lengths import OutputLengths
from leeway_engine.scheduling.request import FinishReason, Request


class KvMemory:
    """Gives requests their blocks, finds computed prefixes again, and keeps room for what running requests will need.

    All calls take time for the blocks of one request at most; `book` of a decode and `grow` take constant time.
    """

    def __init__(self, pool: BlockPool, swap_blocks: int = 0) -> None:
        """`swap_blocks` are the blocks that host memory has room for."""
        self.pool = pool
        self.host = BlockPool(swap_blocks, pool.block_size)
        self.lengths = OutputLengths()
        self.reserved = 0
        """Blocks that the running requests are expected to grow by, at least one for each."""
        self.queried_tokens = 0
        """Prompt tokens of all requests, counted when first admitted."""
        self.hit_tokens = 0
        """How many of them were found computed."""

    def fits(self, request: Request) -> bool:
        """Whether a request can be admitted with all of its known tokens and its expected growth.

        Growth is no condition while nothing runs, so a request that fits the pool alone is never held up for ever.
        """
        found = self._find(request)
        needed = self.pool.blocks_for(request.known) - len(found) + self.pool.unheld(found)
        growth = self.reserved + self._growth(request) if self.reserved else 0
        return needed + growth <= self.pool.free

    def admit(self, request: Request) -> list[Move]:
        """Give a request that fits all blocks of its known tokens; at least one of these is left to compute.

        Tokens found in published blocks, or swapped out, count as computed once the moves are done.
        """
        known, size = request.known, self.pool.block_size
        found = self._find(request)
        hit_tokens = len(found) * size
        first_private = len(found)
        # A fully known block whose last token is computed again, for its logits, is written: a copy of it is.
        shared = found.pop() if hit_tokens == known else None
        self.pool.hold(found)
        if shared is not None:
            self.pool.touch(shared)
        request.blocks = found + self.pool.take(self.pool.blocks_for(known) - len(found))
        moves = [Move(Way.IN, *pair) for pair in _pairs(request.swapped, request.blocks, first_private)]
        if shared is not None and request.blocks[-1] != shared:
            moves.append(Move(Way.COPY, shared, request.blocks[-1]))
        self.host.give_back(request.swapped)
        request.computed = min(known - 1, max(hit_tokens, request.computed))
        request.published = len(found)
        if not request.admissions:
            request.cached = request.computed
            self.queried_tokens += request.prompt_tokens
            self.hit_tokens += request.cached
        request.admissions += 1
        self._reserve(request, max(1, self._growth(request)))
        return moves

    def grow(self, request: Request) -> None:
        """Give a request its next block; there must be a free one."""
        request.blocks += self.pool.take(1)
        self._reserve(request, request.reserved - 1 or max(1, self._growth(request)))

    def book(self, request: Request) -> None:
        """Publish the blocks that have become full of computed tokens."""
        full = min(request.computed // self.pool.block_size, len(request.keys), len(request.blocks))
        for place in range(request.published, full):
            self.pool.publish(request.blocks[place], request.keys[place])
        request.published = max(request.published, full)

    def can_swap(self, request: Request) -> bool:
        """Whether host memory has room for what is computed of a request."""
        return 0 < self.pool.blocks_for(request.computed) <= self.host.free

    def swap_out(self, request: Request) -> list[Move]:
        """Take the blocks from a running request whose moves are done; what is computed of it goes to the host."""
        computed = self.pool.blocks_for(request.computed)
        request.swapped = self.host.take(computed)
        moves = [Move(Way.OUT, *pair) for pair in _pairs(request.blocks, request.swapped)]
        self._let_go(request)
        return moves

    def drop(self, request: Request) -> None:
        """Take the blocks from a running request; it will be computed again but for what is found published."""
        request.computed = 0
        self._let_go(request)

    def release(self, request: Request) -> None:
        """Take all that an ended request holds, and learn from its length if it came to its own end."""
        if request.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            self.lengths.observe(request.slo_class, request.generated)
        self.host.give_back(request.swapped)
        self._let_go(request)

    def _find(self, request: Request) -> list[int]:
        return self.pool.find(islice(request.keys, request.known // self.pool.block_size))

    def _growth(self, request: Request) -> int:
        """Blocks beyond those of its known tokens that a request is expected to fill."""
        expected = self.lengths.expected(request.slo_class, request.generated, request.max_tokens)
        # The last token is never fed back, so it needs no KV.
        tokens = max(request.known, request.prompt_tokens + expected - 1)
        return self.pool.blocks_for(tokens) - self.pool.blocks_for(request.known)

    def _reserve(self, request: Request, blocks: int) -> None:
        self.reserved += blocks - request.reserved
        request.reserved = blocks

    def _let_go(self, request: Request) -> None:
        request.published = 0
        self._reserve(request, 0)
        self.pool.give_back(request.blocks)


def _pairs(sources: list[int], targets: list[int], first: int = 0) -> list[tuple[int, int]]:
    """Pair as many blocks as both lists have, from the place `first` on."""
    return list(zip(sources[first:], targets[first:], strict=False))
