"""The requests that wait for KV blocks."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from leeway_engine.scheduling.backlog import Backlog
from leeway_engine.scheduling.ranking.first_come import FirstComeRanking
from leeway_engine.scheduling.ranking.ranking import Ranking, Retreat
from leeway_engine.scheduling.request import Request


class WaitQueue:
    """All waiting requests, ranked; whoever is overdue goes before those that the ranking prefers."""

    def __init__(self, ranking: Ranking) -> None:
        """Begin empty."""
        self.requests: OrderedDict[str, Request] = OrderedDict()
        """By id; those preempted stand in front."""
        self.tokens = 0
        """Tokens to compute of all of them."""
        self.backlog = Backlog()
        self.overdue_iterations: int | None = None
        self._ranking = ranking
        self._arrivals = FirstComeRanking()

    @property
    def steady(self) -> bool:
        """Whether the first stays the first as long as no request comes or goes."""
        return self._ranking.steady and self.overdue_iterations is None

    @property
    def preempts(self) -> bool:
        """Whether the first may take the place of running requests."""
        return self._ranking.preempts

    def rank(self, ranking: Ranking, iteration: int, now_s: float) -> None:
        """Go on with another ranking, which takes over all that wait."""
        self._ranking = ranking
        for request in self.requests.values():
            ranking.add(request, iteration, now_s)

    def add(self, request: Request, iteration: int, now_s: float) -> None:
        """Queue an arrival."""
        self.requests[request.request_id] = request
        self.tokens += request.to_compute
        self.backlog.add(request)
        request.account.waiting_tokens += request.to_compute
        self._ranking.add(request, iteration, now_s)
        self._arrivals.add(request, iteration, now_s)

    def add_again(self, request: Request, iteration: int, now_s: float) -> None:
        """Queue one that had run before."""
        self.add(request, iteration, now_s)
        self.requests.move_to_end(request.request_id, last=False)

    def remove(self, request: Request) -> None:
        """Take out a request that was admitted or ended. What it has to compute must still be what it came with."""
        del self.requests[request.request_id]
        self.tokens -= request.to_compute
        self.backlog.remove(request)
        request.account.waiting_tokens -= request.to_compute
        self._ranking.discard(request)
        self._arrivals.discard(request)

    def first(self, iteration: int, now_s: float) -> Request | None:
        """Return who is to be admitted next."""
        if self.overdue_iterations is not None:
            earliest = self._arrivals.first(iteration, now_s)
            if earliest and iteration - earliest.arrival_iteration >= self.overdue_iterations:
                return earliest
        return self._ranking.first(iteration, now_s)

    def reason(self, request: Request, iteration: int) -> str:
        """Say why this one, of those that wait, is to be admitted next."""
        waited = iteration - request.arrival_iteration
        if self.overdue_iterations is not None and waited >= self.overdue_iterations:
            return f"overdue after {waited} iterations"
        return self._ranking.reason(request)

    def displaces(self, request: Request) -> bool:
        """Whether any that run may stand back for a waiting request."""
        return self._ranking.displaces(request)

    def in_order_of_retreat(self, running: Iterable[Request], iteration: int) -> Iterable[Request]:
        """Return the running requests that may have to stand back, who does so first; never overdue ones."""
        overdue = self.overdue_iterations
        if overdue is not None:
            running = [other for other in running if iteration - other.arrival_iteration < overdue]
        return self._ranking.in_order_of_retreat(running)

    def outranked(self, request: Request, retreating: Retreat, now_s: float) -> Iterator[Request]:
        """Give those in order of retreat that stand back for a waiting request."""
        return self._ranking.outranked(request, retreating, now_s)

    def last(self, running: Iterable[Request]) -> Request:
        """Return the running request that the ranking would miss least; the earliest arrival stays, so that all end."""
        return self._ranking.last(spare_earliest(running))


def spare_earliest(running: Iterable[Request]) -> list[Request]:
    """Return all but the earliest arrival, or that if it is the only one."""
    requests = list(running)
    if len(requests) > 1:
        requests.remove(min(requests, key=lambda request: request.order))
    return requests
