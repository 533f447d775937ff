"""How many iterations requests wait for their first chunk, and for each further token."""

from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import Request, State
from leeway_engine.scheduling.scheduler import Scheduler


class Waits:
    """The longest waits that a scheduler let happen."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Nothing has waited yet."""
        self.longest_wait = self.longest_pause = self.preemptions = 0
        self._scheduler = scheduler
        self._last_token: dict[Request, int] = {}

    def note(self, plan: Plan) -> None:
        """Note an iteration that was completed."""
        iteration = self._scheduler.iterations
        self.preemptions += len(plan.preempted)
        for request in plan.admitted:
            if request.admissions == 1:
                self.longest_wait = max(self.longest_wait, iteration - request.arrival_iteration)
        for request in plan.decodes:
            self._token(request, iteration)
        for request, _ in plan.prefills:
            if request.state is not State.PREFILLING:
                self._token(request, iteration)

    def end(self) -> None:
        """Count those who wait still, at their first or at a later token."""
        iteration = self._scheduler.iterations
        for request in self._scheduler.waiting.values():
            if not request.admissions:
                self.longest_wait = max(self.longest_wait, iteration - request.arrival_iteration)
        for last in self._last_token.values():
            self.longest_pause = max(self.longest_pause, iteration - last)

    def _token(self, request: Request, iteration: int) -> None:
        self.longest_pause = max(self.longest_pause, iteration - self._last_token.get(request, iteration))
        if request.state is State.FINISHED:
            self._last_token.pop(request, None)
        else:
            self._last_token[request] = iteration
