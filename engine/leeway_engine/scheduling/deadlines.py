"""Finds the waiting requests whose deadline is out of reach, without looking at all of them."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from leeway_engine.scheduling.outlook import Outlook, Reach
from leeway_engine.scheduling.request import Request, State

_LEAST_WAIT_S = 0.001


class Deadlines:
    """Times at which requests must be looked at again: when their deadline will be out of reach as things stand now.

    Slack = deadline - now - predicted remaining time. A request can be looked at too late only if the predictions grew
    since, and then no later than at the time that the old ones gave.
    """

    def __init__(self, outlook: Outlook) -> None:
        """Begin without requests."""
        self._outlook = outlook
        self._due: list[tuple[float, int, Request]] = []
        self._serial = count()

    def watch(self, request: Request) -> None:
        """Watch a request from its arrival on."""
        if request.deadline_s is not None:
            self._look_at(request, self._due_s(request, request.deadline_s))

    def unreachable(self, now_s: float) -> Iterator[Request]:
        """Yield, once each, the requests still without any service that cannot meet their deadline any more."""
        while self._due and self._due[0][0] <= now_s:
            request = heappop(self._due)[2]
            if request.state is not State.WAITING or request.deadline_s is None or request.downgraded:
                continue
            if self._outlook.reach(request, now_s) is Reach.UNREACHABLE:
                yield request
            else:
                # At an exact tie it is not out of reach yet, and the next look must be later than this one.
                due_s = self._due_s(request, request.deadline_s)
                self._look_at(request, max(due_s, now_s + _LEAST_WAIT_S))

    def _due_s(self, request: Request, deadline_s: float) -> float:
        return deadline_s - self._outlook.remaining_s(request) * (1 - self._outlook.doubt)

    def _look_at(self, request: Request, time_s: float) -> None:
        heappush(self._due, (time_s, next(self._serial), request))
