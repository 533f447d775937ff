"""Which KV blocks each request holds, on the device and swapped out to the host."""

from collections.abc import Collection, Iterable
from itertools import islice

from leeway_core.policies import Growth

from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.move import Move, Way
from leeway_engine.scheduling.request import Request


class KvMemory:
    """Gives requests their blocks, finds computed prefixes again, and keeps free what was promised to running ones.

    A call takes time for the blocks of one request at most; `grow`, and `book` of decodes, constant time for each.
    """

    def __init__(self, pool: BlockPool, lengths: OutputLengths, swap_blocks: int = 0) -> None:
        """Begin with nothing held. `swap_blocks` are the blocks that host memory has room for."""
        self.pool = pool
        self.host = BlockPool(swap_blocks, pool.block_size)
        self.promised = 0
        """Blocks that running requests may still ask for; they are free, but not for admissions."""
        self.queried_tokens = 0
        """Prompt tokens of all requests, counted when first admitted."""
        self.hit_tokens = 0
        """How many of them were found computed."""
        self._lengths = lengths
        self._sought: tuple[Request, int, int, int] | None = None
        """What `_find` was asked last, as the same is asked several times for one admission."""
        self._found: tuple[list[int], int | None] = ([], None)

    def found_tokens(self, keys: list[bytes], prompt_tokens: int) -> int:
        """How many tokens of a prompt with these keys are in KV now, and need not be computed: all but one at most."""
        return min(len(self.pool.find(keys)) * self.pool.block_size, prompt_tokens - 1)

    def to_lose(self, request: Request) -> tuple[int, int]:
        """How many of its blocks nobody else holds, and how many computed tokens are lost with its blocks.

        The former are free once it gives them back; tokens in blocks that others hold too are found again.
        """
        shared = self.pool.shared(request.blocks)
        return len(request.blocks) - shared, max(0, request.computed - shared * self.pool.block_size)

    def to_recompute(self, request: Request) -> int:
        """Computed tokens that are lost with its blocks."""
        return self.to_lose(request)[1]

    def lacking(self, request: Request, growth: Growth, running: int) -> int:
        """How many blocks must become free until it fits beside so many running ones; 0 or less if it does."""
        shared, _ = self._find(request)
        spare = running if growth.reserve == "none" else 0
        needed = self._need(request, growth) - len(shared) + self.pool.unheld(shared)
        return needed + spare - (self.pool.free - self.promised)

    def gained(self, victim: Request, request: Request, growth: Growth) -> int:
        """How many blocks less a waiting request lacks once a running one is preempted."""
        shared, _ = self._find(request)
        # What is found by a key stands at the same place wherever it is held.
        kept = [block for block, found in zip(victim.blocks, shared, strict=False) if block == found]
        own = self.pool.held_once(victim.blocks) - self.pool.held_once(kept)
        return own + max(0, victim.reserved_blocks - len(victim.blocks)) + (growth.reserve == "none")

    def admit(self, request: Request, growth: Growth) -> list[Move]:
        """Give a request that fits the blocks of its known tokens, and promise those that it is to grow by.

        Tokens found in published blocks, or swapped out, count as computed once the moves are done. At least one
        known token is left to compute, as the next token is drawn after it.
        """
        shared, copied = self._find(request)
        self.pool.hold(shared)
        if copied is not None:
            self.pool.touch(copied)
        request.blocks = shared + self.pool.take(self.pool.blocks_for(request.known) - len(shared))
        found = len(shared) + (copied is not None)
        swapped_in = zip(request.swapped[found:], request.blocks[found:], strict=False)
        way = Way.IN
        moves = [Move(way, source, target) for source, target in swapped_in]
        if copied is not None and copied != request.blocks[-1]:
            moves.append(Move(Way.COPY, copied, request.blocks[-1]))
        self.host.give_back(request.swapped)
        request.found = 0
        request.computed = min(request.known - 1, max(found * self.pool.block_size, request.computed))
        request.published = len(shared)
        request.reserved_blocks = self._need(request, growth)
        self.promised += request.reserved_blocks - len(request.blocks)
        self._count(request)
        return moves

    def grow(self, requests: Collection[Request]) -> None:
        """Take one more block for each, a promised one if it has any left; as many must be free."""
        promised = 0
        for request, block in zip(requests, self.pool.take(len(requests)), strict=True):
            blocks = request.blocks
            blocks.append(block)
            promised += len(blocks) <= request.reserved_blocks
        self.promised -= promised

    def book(self, requests: Iterable[Request]) -> None:
        """Publish the blocks of requests that have become full of computed tokens."""
        publish, size = self.pool.publish, self.pool.block_size
        for request in requests:
            keys, published = request.keys, request.published
            full = min(request.computed // size, len(keys))
            if full > published:
                publish(request.blocks, keys, range(published, full))
                request.published = full

    def can_swap(self, request: Request) -> bool:
        """Whether host memory has room for what is computed of a request."""
        return 0 < self.pool.blocks_for(request.computed) <= self.host.free

    def swap_out(self, request: Request) -> list[Move]:
        """Take the blocks from a running request whose moves are done; what is computed of it goes to the host."""
        request.swapped = self.host.take(self.pool.blocks_for(request.computed))
        way = Way.OUT
        moves = [Move(way, source, target) for source, target in zip(request.blocks, request.swapped, strict=False)]
        self._let_go(request)
        return moves

    def drop(self, request: Request) -> None:
        """Take the blocks from a running request; it will be computed again but for what is found published."""
        self._let_go(request)
        request.reached = max(request.reached, request.computed)
        request.computed = 0

    def take_back(self, request: Request) -> None:
        """Undo an admission before any of its moves was made; the request will be computed from its beginning."""
        self.drop(request)
        request.admissions -= 1
        if request.admissions == 0:
            self.queried_tokens -= request.prompt_tokens
            self.hit_tokens -= request.cached

    def keep(self, request: Request) -> bool:
        """Leave a running request its full computed blocks, for others to find, and nothing else; whether it has any.

        Where another holds a block of the same key, that one is kept and its own given back.
        """
        full = request.computed // self.pool.block_size
        self.book((request,))
        found = self.pool.find(islice(request.keys, full))
        if len(found) < full:
            # A block stayed private while another had its key, which has been evicted since.
            request.published = 0
            self.book((request,))
            found = self.pool.find(islice(request.keys, full))
        self._unreserve(request)
        if found == request.blocks[: len(found)]:
            spare = request.blocks[len(found) :]
        else:
            self.pool.hold(found)
            spare = request.blocks
        self.pool.give_back(spare)
        request.blocks = found
        return bool(found)

    def release(self, request: Request) -> None:
        """Take all that an ended request holds, here and on the host."""
        self.host.give_back(request.swapped)
        self._let_go(request)

    def _find(self, request: Request) -> tuple[list[int], int | None]:
        """Blocks to share, and the last block of the known tokens where it is found too.

        In that one the last token is computed again, which must not touch what others hold: it is to be copied.
        """
        sought = (request, request.known, len(request.keys), self.pool.changes)
        if sought != self._sought:
            size = self.pool.block_size
            found = self.pool.find(islice(request.keys, request.known // size))
            whole = found and len(found) * size == request.known
            self._sought, self._found = sought, (found[:-1], found[-1]) if whole else (found, None)
        return self._found

    def _need(self, request: Request, growth: Growth) -> int:
        """Blocks of the known tokens and of those that are kept for growth; the last token needs no KV."""
        most = max(0, request.max_tokens - request.generated - 1)
        if growth.reserve == "none":
            most = 0
        elif growth.reserve == "expected":
            expected = self._lengths.expected(request.slo_class, request.max_tokens, growth.quantile_percent)
            most = min(most, max(0, expected - request.generated - 1))
        return self.pool.blocks_for(request.known + most)

    def _count(self, request: Request) -> None:
        if request.admissions == 0:
            request.cached = request.computed
            self.queried_tokens += request.prompt_tokens
            self.hit_tokens += request.cached
        request.admissions += 1

    def _let_go(self, request: Request) -> None:
        self._unreserve(request)
        self.pool.give_back(request.blocks)

    def _unreserve(self, request: Request) -> None:
        self.promised -= max(0, request.reserved_blocks - len(request.blocks))
        request.reserved_blocks = request.published = 0
