"""The requests that decode."""

from collections.abc import Sequence
from operator import attrgetter

from leeway_engine.scheduling.request import Request, State

_ORDER, _LAST_SCHEDULED = attrgetter("order"), attrgetter("last_scheduled")


class Decodes:
    """Who decodes, in the order in which they began to, and which of them need a further block.

    However many decode: to plan all of them for an iteration takes time only for those that need a block.
    """

    def __init__(self, block_size: int) -> None:
        """Nobody decodes yet."""
        self.requests: dict[Request, None] = {}
        self.context_tokens = 0
        """Tokens in KV of all of them together."""
        self._block_size = block_size
        self._full: dict[Request, None] = {}
        """All of them whose blocks are full, and some that left or got a block since they were."""
        self._together_iteration = 0
        """The last iteration in which all of them decoded."""

    def add(self, request: Request) -> None:
        """Take in a request that begins to decode."""
        self.requests[request] = None
        self.context_tokens += request.computed
        if request.computed % self._block_size == 0:
            self._full[request] = None

    def discard(self, request: Request) -> None:
        """Let go of a request that decodes no more; its computed tokens must still be those that were booked."""
        if request in self.requests:
            del self.requests[request]
            self.context_tokens -= request.computed

    def together(self, iteration: int) -> list[Request]:
        """Let all of them decode in an iteration."""
        self._together_iteration = iteration
        return list(self.requests)

    def in_turn(self, slots: int, iteration: int) -> list[Request]:
        """Let so many decode in an iteration: those that have waited longest, the earliest arrivals of these."""
        for request in self.requests:
            request.last_scheduled = max(request.last_scheduled, self._together_iteration)
        decodes = sorted(self.requests, key=_ORDER)
        decodes.sort(key=_LAST_SCHEDULED)
        del decodes[slots:]
        for request in decodes:
            request.last_scheduled = iteration
        return decodes

    def lacking_blocks(self) -> list[Request]:
        """Return those that cannot decode without a further block."""
        decoding, size = State.DECODING, self._block_size
        lacking = [r for r in self._full if r.state is decoding and r.computed == len(r.blocks) * size]
        self._full = dict.fromkeys(lacking)
        return lacking

    def book(self, decodes: Sequence[Request], iterations: int) -> tuple[list[Request], list[Request]]:
        """Book a token each for so many iterations; returns whose last block became full, and whose output whole."""
        size, full, whole = self._block_size, [], []
        for request in decodes:
            request.computed = computed = request.computed + iterations
            request.generated = generated = request.generated + iterations
            if not computed % size:
                full.append(request)
            if generated >= request.max_tokens:
                whole.append(request)
        self.context_tokens += len(decodes) * iterations
        self._full.update(dict.fromkeys(full))
        return full, whole
