"""Skip-join multi-level feedback queue (FastServe)."""

from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from math import inf
from operator import attrgetter

from leeway_core.policies import SkipJoin

from leeway_engine.scheduling.ranking.ranking import Ranking, Retreat
from leeway_engine.scheduling.ranking.request_heap import RequestHeap
from leeway_engine.scheduling.request import Request

_ORDER = attrgetter("order")


class SkipJoinRanking(Ranking):
    """A new request joins the first level whose quantum covers its prefill; served a quantum, it sinks one level.

    Quanta are in tokens computed, each counted once, and double from level to level. A running request stands back for
    a waiting one that its size or its service has brought to a higher level. Whoever has waited past the limit, all its
    waits since it was last at the top together, rises to the top: it takes the next place that is free, and runs for a
    whole quantum before it sinks and can be made to stand back. The level of a running request is worked out only when
    it is asked for.
    """

    preempts = True

    def __init__(self, settings: SkipJoin) -> None:
        """Begin empty."""
        self._settings = settings
        self._levels = [RequestHeap() for _ in range(settings.levels)]
        self._looked_at = -1
        """Iteration in which those that had waited too long rose last."""
        self._rise_iteration: float = inf
        """Iteration before which nobody of those that wait will have waited too long."""

    def add(self, request: Request, iteration: int, now_s: float) -> None:
        """Join a level, or come back to the one that the service has led to; who has waited longest is first in it."""
        if request.level_since < 0:
            request.level_since = iteration - request.ran_iterations
        since = request.level_since + request.ran_iterations
        level = self._level(request)
        self._levels[level].put(request, since)
        if level:
            self._rise_iteration = min(self._rise_iteration, since + self._settings.promotion_iterations)

    def discard(self, request: Request) -> None:
        """Let go of a request."""
        self._levels[request.level].discard(request)
        request.risen = False
        if request.level == 0:
            request.level_since = -1

    def first(self, iteration: int, now_s: float) -> Request | None:
        """Return the first of the highest level that has any, after those who waited too long rose to the top."""
        if iteration >= self._rise_iteration and iteration != self._looked_at:
            self._looked_at = iteration
            self._raise_who_waited(iteration)
        for level in self._levels:
            if (first := level.first()) is not None:
                return first
        return None

    def _raise_who_waited(self, iteration: int) -> None:
        top = self._levels[0]
        for level in self._levels[1:]:
            while (waiting := level.first()) and iteration - level.key(waiting) >= self._settings.promotion_iterations:
                level.discard(waiting)
                waiting.level, waiting.level_progress, waiting.risen = 0, waiting.progress, True
                waiting.level_since = iteration - waiting.ran_iterations
                top.put(waiting, iteration)
        longest = [level.key(first) for level in self._levels[1:] if (first := level.first())]
        self._rise_iteration = min(longest, default=inf) + self._settings.promotion_iterations

    def reason(self, request: Request) -> str:
        """Return its level."""
        return f"skip_join: level {request.level}"

    def displaces(self, request: Request) -> bool:
        """Whether it has not risen by waiting: a long queue of such would go round in circles."""
        return not request.risen

    def in_order_of_retreat(self, running: Iterable[Request]) -> Iterable[Request]:
        """Return them by level, the latest arrival of the lowest first; at the top nobody stands back."""
        lowest, quantum = self._settings.levels - 1, self._settings.first_quantum_tokens
        sunk: list[list[Request]] = [[] for _ in range(lowest + 1)]
        for request in running:
            level = request.level
            # Most have not sunk since they were last looked at. The sum is `progress`, which takes longer to call.
            served = request.prefilled - request.recomputed + request.generated - request.level_progress
            if not 0 <= level <= lowest or served >= quantum << level:
                level = self._level(request)
            sunk[level].append(request)
        return _LatestOfLowest(sunk[1:])

    def outranked(self, request: Request, retreating: Retreat, now_s: float) -> Iterator[Request]:
        """Give those of lower levels."""
        return takewhile(lambda other: other.level > request.level, retreating())

    def last(self, running: Collection[Request]) -> Request:
        """Return the latest arrival of the lowest level."""
        return max(running, key=lambda request: (self._level(request), request.order))

    def _level(self, request: Request) -> int:
        """Return a request's level now, and keep it with the request."""
        lowest = self._settings.levels - 1
        if request.level < 0:
            request.level = 0
            while request.level < lowest and self._quantum(request.level) < request.pending:
                request.level += 1
        request.level = min(request.level, lowest)
        while request.level < lowest and request.progress - request.level_progress >= self._quantum(request.level):
            request.level_progress += self._quantum(request.level)
            request.level += 1
        return request.level

    def _quantum(self, level: int) -> int:
        """Tokens that may be computed for a request in a level."""
        return self._settings.first_quantum_tokens << level


class _LatestOfLowest:
    """Requests of several levels from the lowest up, each level sorted only once it is come to: mostly one will do."""

    def __init__(self, levels: list[list[Request]]) -> None:
        self._unsorted = levels
        self._sorted: list[list[Request]] = []

    def __iter__(self) -> Iterator[Request]:
        place = 0
        while place < len(self._sorted) or self._unsorted:
            if place == len(self._sorted):
                self._sorted.append(sorted(self._unsorted.pop(), key=_ORDER, reverse=True))
            yield from self._sorted[place]
            place += 1
