"""Shortest prompt first, with ageing (as Nexus's score: remaining - gamma·age)."""

from leeway_core.policies import ShortestPrompt

from leeway_engine.scheduling.ranking.ranking import Ranking
from leeway_engine.scheduling.ranking.request_heap import RequestHeap
from leeway_engine.scheduling.request import Request


class ShortestPromptRanking(Ranking):
    """The least of remaining prefill - gamma·age goes first.

    All age alike, so the order of two requests never changes: remaining + gamma·arrival iteration is a fixed key.
    """

    steady = True

    def __init__(self, settings: ShortestPrompt) -> None:
        """Begin empty."""
        self._settings = settings
        self._queue = RequestHeap()

    def add(self, request: Request, iteration: int, now_s: float) -> None:
        """Order by tokens to compute and by age."""
        self._queue.put(request, request.to_compute + self._settings.ageing_tokens * request.arrival_iteration)

    def discard(self, request: Request) -> None:
        """Let go of a request."""
        self._queue.discard(request)

    def first(self, iteration: int, now_s: float) -> Request | None:
        """Return the shortest, age considered."""
        return self._queue.first()

    def reason(self, request: Request) -> str:
        """Return its key."""
        return f"shortest_prompt: key {self._queue.key(request):g}"
