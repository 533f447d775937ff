"""Effective priority = class and priority + urgency of the deadline + age - estimated cost."""

from heapq import heappop, heappush
from itertools import count
from math import ceil

from leeway_core.policies import EffectivePriority

from leeway_engine.scheduling.outlook import Outlook, Reach
from leeway_engine.scheduling.ranking.ranking import Ranking
from leeway_engine.scheduling.ranking.request_heap import RequestHeap
from leeway_engine.scheduling.request import Request

_URGENCY_STEPS = 4


class EffectivePriorityRanking(Ranking):
    """Most points first.

    Age is the same boost per iteration for all, so it is part of a fixed key. Urgency grows in a few steps: a request
    gets a new key only at a step, which a heap of times tells, so no plan looks at the whole queue. A deadline that is
    doubtful or out of reach gives no urgency any more.
    """

    def __init__(self, settings: EffectivePriority, outlook: Outlook) -> None:
        """`outlook` tells how far a request's deadline is."""
        self._settings = settings
        self._outlook = outlook
        self._queue = RequestHeap()
        self._steps: list[tuple[float, int, Request]] = []
        self._serial = count()

    def add(self, request: Request, iteration: int, now_s: float) -> None:
        """Order by points, and look again when its urgency changes."""
        urgency = 0.0
        if request.deadline_s is not None and not request.downgraded:
            urgency = self._urgency(request, request.deadline_s, now_s)
        settings = self._settings
        points = urgency - settings.cost_points * (request.to_compute + self._outlook.output_left(request))
        if not request.downgraded:
            points += settings.class_points.get(request.slo_class, 0.0) + request.priority
        self._queue.put(request, settings.age_points * request.arrival_iteration - points)

    def discard(self, request: Request) -> None:
        """Let go of a request."""
        self._queue.discard(request)

    def first(self, iteration: int, now_s: float) -> Request | None:
        """Return the request with most points now."""
        steps = self._steps
        while steps and steps[0][0] <= now_s:
            request = heappop(steps)[2]
            if request in self._queue:
                self.add(request, iteration, now_s)
        return self._queue.first()

    def reason(self, request: Request) -> str:
        """Return its points, as they were when it was last ordered, those for age counted from the first iteration."""
        return f"effective_priority: points {-self._queue.key(request):g}"

    def _urgency(self, request: Request, deadline_s: float, now_s: float) -> float:
        """Points of urgency, rising in equal steps from the horizon to no slack."""
        left_s, remaining_s = deadline_s - now_s, self._outlook.remaining_s(request)
        step_s = self._settings.urgency_horizon_s / _URGENCY_STEPS
        steps_left = max(0, ceil((left_s - remaining_s) / step_s))
        reachable = self._outlook.reach_within(left_s, remaining_s) is Reach.REACHABLE
        if steps_left > 0 or reachable:
            next_s = left_s - remaining_s - (min(steps_left, _URGENCY_STEPS + 1) - 1) * step_s
            if reachable:
                next_s = min(next_s, left_s - remaining_s * (1 + self._outlook.doubt))
            heappush(self._steps, (now_s + max(next_s, step_s / 1000), next(self._serial), request))
        if not reachable:
            return 0.0
        return self._settings.urgency_points * max(0, _URGENCY_STEPS + 1 - max(1, steps_left)) / _URGENCY_STEPS
