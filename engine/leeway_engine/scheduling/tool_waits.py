"""Ended requests that keep their KV for the request that goes on from them, as after the call of a tool."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count, takewhile

from leeway_engine.scheduling.request import Request

_FEW_STALE = 64
_Entry = tuple[float, int, Request]


class ToolWaits:
    """Who waits, until when, and who goes on from whom. What they hold is the scheduler's to take back.

    However many wait, a plan takes time only for those whose wait ends and those that give way.
    """

    def __init__(self, block_size: int) -> None:
        """Nobody waits at first."""
        self._block_size = block_size
        self.blocks = 0
        """KV blocks that they hold, where each is counted once for every holder."""
        self._until_s: dict[Request, float] = {}
        self._by_prompt: dict[bytes, list[Request]] = {}
        # Heaps in which what has ended stays, stale, until it comes to the top.
        self._ends: list[_Entry] = []
        """By a time that is never later than that in `_until_s`."""
        self._costs: list[_Entry] = []
        """By the tokens to compute again."""
        self._serial = count()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._until_s)

    def __iter__(self) -> Iterator[Request]:
        """Those that wait, the longest first."""
        return iter(self._until_s)

    @property
    def next_end_s(self) -> float | None:
        """When the first wait ends; None if nobody waits."""
        ends = self._ends
        while ends:
            end_s, _, request = ends[0]
            until_s = self._until_s.get(request)
            if until_s == end_s:
                return end_s
            heappop(ends)
            if until_s is not None:
                heappush(ends, (until_s, next(self._serial), request))
        return None

    def begin(self, request: Request, now_s: float) -> None:
        """Let a request, which holds blocks with keys, wait as long as it asked for, but not past its time-out."""
        self._until_s[request] = min(now_s + request.tool_wait_s, request.expires_s)
        self._by_prompt.setdefault(self._prompt_key(request), []).append(request)
        self.blocks += len(request.blocks)
        heappush(self._ends, (self._until_s[request], next(self._serial), request))
        heappush(self._costs, (request.computed, next(self._serial), request))
        if max(len(self._ends), len(self._costs)) > 2 * len(self._until_s) + _FEW_STALE:
            self._tidy()

    def end(self, request: Request) -> None:
        """Wait no more; it must still hold its blocks."""
        del self._until_s[request]
        self.blocks -= len(request.blocks)
        key = self._prompt_key(request)
        self._by_prompt[key].remove(request)
        if not self._by_prompt[key]:
            del self._by_prompt[key]

    def before(self, request: Request) -> Request | None:
        """Return the one that a request goes on from, if there is one.

        It begins with the other's prompt and is longer. Of several, it has most in common with that one's answer,
        which a chat template may write in another way.
        """
        by_prompt = self._by_prompt
        if by_prompt.keys().isdisjoint(request.keys):
            return None
        same = [other for key in request.keys if key in by_prompt for other in by_prompt[key]]
        shorter = [other for other in same if other.prompt_tokens < request.prompt_tokens]
        if len(shorter) == 1:
            return shorter[0]
        return max(shorter, key=lambda other: _common(other.keys, request.keys), default=None)

    def renew(self, request: Request, now_s: float) -> None:
        """Let the one that a request goes on from wait anew, as the request itself may have to."""
        if other := self.before(request):
            self._until_s[other] = max(self._until_s[other], min(now_s + other.tool_wait_s, other.expires_s))

    def over(self, now_s: float) -> list[Request]:
        """Take out the times of those that have waited for as long as they asked for; they must end now."""
        over = []
        while (end_s := self.next_end_s) is not None and end_s <= now_s:
            over.append(heappop(self._ends)[2])
        return over

    def cheapest(self, for_whom: Request | None) -> Request | None:
        """Return who is to give its blocks up first: the one with the fewest tokens to compute again.

        So no more is lost than must be. The one that `for_whom` goes on from is the last.
        """
        own = self.before(for_whom) if for_whom else None
        costs, own_entry = self._costs, None
        while costs and ((request := costs[0][2]) is own or request not in self._until_s):
            entry = heappop(costs)
            if request is own:
                own_entry = entry
        cheapest = costs[0][2] if costs else own
        if own_entry is not None:
            heappush(costs, own_entry)
        return cheapest

    def _tidy(self) -> None:
        """Leave only those that wait in the heaps."""
        self._ends = [(until_s, next(self._serial), request) for request, until_s in self._until_s.items()]
        self._costs = [(request.computed, next(self._serial), request) for request in self._until_s]
        heapify(self._ends)
        heapify(self._costs)

    def _prompt_key(self, request: Request) -> bytes:
        """Key of the last full block of its prompt, or of its first block if its prompt fills none."""
        return request.keys[max(0, request.prompt_tokens // self._block_size - 1)]


def _common(keys: list[bytes], others: list[bytes]) -> int:
    """How many blocks two requests begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(keys, others, strict=False)))
