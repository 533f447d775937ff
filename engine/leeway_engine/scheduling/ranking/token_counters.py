"""Virtual token counters (VTC): the tenant that was served least goes first."""

from collections.abc import Collection

from leeway_engine.scheduling.account import Account
from leeway_engine.scheduling.ranking.ranking import Ranking
from leeway_engine.scheduling.ranking.request_heap import RequestHeap
from leeway_engine.scheduling.request import Request
from leeway_engine.scheduling.tenants import Tenants


class TokenCountersRanking(Ranking):
    """The tenant with the smallest counter goes first, with its earliest arrival.

    Between two tenants that wait all the time, the service W in weighted tokens differs by at most
    2·max(w_p·L_in, w_q·M), L_in the longest prompt and M the KV pool in tokens (Sheng et al.). The proof needs that
    the requests that run together never fill more than M tokens up to their ends, so KV must be reserved for all of
    `max_tokens` (growth `all`), shares and residency at their defaults, and that nothing goes before the counters:
    neither protection nor slack.
    """

    def __init__(self, tenants: Tenants) -> None:
        """`tenants` count what is served."""
        self._tenants = tenants
        self._queues: dict[Account, RequestHeap] = {}

    def add(self, request: Request, iteration: int, now_s: float) -> None:
        """Queue behind the tenant's earlier arrivals."""
        self._queues.setdefault(request.account, RequestHeap()).put(request, request.order)

    def discard(self, request: Request) -> None:
        """Let go of a request."""
        queue = self._queues[request.account]
        queue.discard(request)
        if not len(queue):
            del self._queues[request.account]

    def first(self, iteration: int, now_s: float) -> Request | None:
        """Return the earliest arrival of the least served tenant."""
        account = self._tenants.least_served()
        if account not in self._queues:
            # The least served of all waits in another tier of deadlines.
            account = min(self._queues, key=lambda account: (account.counter, account.tenant), default=None)
        return None if account is None else self._queues[account].first()

    def reason(self, request: Request) -> str:
        """Return what its tenant was served."""
        return f"token_counters: served {request.account.counter:g}"

    def last(self, running: Collection[Request]) -> Request:
        """Return the latest arrival of the most served tenant."""
        return max(running, key=lambda request: (request.account.counter, request.order))
