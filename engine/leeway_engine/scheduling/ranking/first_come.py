"""First come, first served."""

from leeway_engine.scheduling.ranking.ranking import Ranking
from leeway_engine.scheduling.ranking.request_heap import RequestHeap
from leeway_engine.scheduling.request import Request


class FirstComeRanking(Ranking):
    """The earliest arrival goes first, a preempted one by its arrival too."""

    steady = True

    def __init__(self) -> None:
        """Begin empty."""
        self._queue = RequestHeap()

    def add(self, request: Request, iteration: int, now_s: float) -> None:
        """Order by arrival."""
        self._queue.put(request, request.order)

    def discard(self, request: Request) -> None:
        """Let go of a request."""
        self._queue.discard(request)

    def first(self, iteration: int, now_s: float) -> Request | None:
        """Return the earliest arrival."""
        return self._queue.first()

    def reason(self, request: Request) -> str:
        """Return its place among all arrivals."""
        return f"first_come: arrival {request.order}"
