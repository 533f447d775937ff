"""Which requests fit the KV pool: what is held, and what is kept for growth."""

from leeway_core.policies import Growth

from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.request import Request


class KvLimit:
    """Takes and gives back the blocks of requests, and keeps free what was promised to them."""

    def __init__(self, pool: BlockPool, lengths: OutputLengths) -> None:
        """Begin with nothing promised."""
        self.promised = 0
        """Blocks that running requests may still ask for; they are free, but not for admissions."""
        self._pool = pool
        self._lengths = lengths

    def fits(self, request: Request, growth: Growth, running: int) -> bool:
        """Whether the request can be admitted beside so many running ones."""
        spare = running if growth.reserve == "none" else 0
        return self._need(request, growth) + spare <= self._pool.free - self.promised

    def admit(self, request: Request, growth: Growth) -> None:
        """Take the blocks of the request's known tokens and promise those that it is to grow by."""
        request.blocks += self._pool.take(self._pool.blocks_for(request.known))
        request.reserved_blocks = self._need(request, growth)
        self.promised += request.reserved_blocks - len(request.blocks)

    def grow(self, request: Request) -> None:
        """Take one more block, a promised one if there are any left; one must be free."""
        request.blocks += self._pool.take(1)
        if len(request.blocks) <= request.reserved_blocks:
            self.promised -= 1

    def release(self, request: Request) -> None:
        """Give all blocks of the request back; nothing of it is in KV any more."""
        self.promised -= max(0, request.reserved_blocks - len(request.blocks))
        self._pool.give_back(request.blocks)
        request.reserved_blocks = request.computed = 0

    def _need(self, request: Request, growth: Growth) -> int:
        """Blocks of the known tokens and of those that are kept for growth; the last token needs no KV."""
        most = max(0, request.max_tokens - request.generated - 1)
        if growth.reserve == "none":
            most = 0
        elif growth.reserve == "expected":
            expected = self._lengths.expected(request.slo_class, request.max_tokens, growth.quantile_percent)
            most = min(most, max(0, expected - request.generated - 1))
        return self._pool.blocks_for(request.known + most)
