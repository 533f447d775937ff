"""Which running request loses its KV when blocks run out, and what becomes of it."""

from collections.abc import Collection, Iterator
from enum import Enum
from heapq import heapify, heappop, heappush

from leeway_core.policies import Victim

from leeway_engine.scheduling.account import Account
from leeway_engine.scheduling.kv_memory import KvMemory
from leeway_engine.scheduling.outlook import Outlook, Reach
from leeway_engine.scheduling.request import Request
from leeway_engine.scheduling.swap_cost import SwapCost
from leeway_engine.scheduling.tenants import Tenants


class Remedy(Enum):
    """How a preempted request comes back."""

    RECOMPUTE = "recompute"
    SWAP = "swap"
    REJECT = "reject"


class VictimChoice:
    """Scores running requests: freed KV - cost to come back - lost deadline + its tenant's debt - nearly finished."""

    def __init__(self, settings: Victim, outlook: Outlook, tenants: Tenants, kv: KvMemory, swap: SwapCost) -> None:
        """Judge by these weights, predictions, debts, holders and costs."""
        self._settings = settings
        self._kv = kv
        self._outlook = outlook
        self._tenants = tenants
        self.swap = swap

    def candidates(self, running: Collection[Request], now_s: float) -> Iterator[Request]:
        """Yield the requests from the best score to the worst, the latest arrival first among equals.

        A deadline is dear to look at and only takes points, so it is looked at only where it decides who is next.
        """
        least = self._tenants.least_served()
        heap = [
            (-self._points(request, least), -request.order, request.deadline_s is None, request) for request in running
        ]
        heapify(heap)
        while heap:
            points, order, judged, request = heappop(heap)
            if judged:
                yield request
            else:
                lost = self._settings.deadline_points if self._loses_deadline(request, now_s) else 0.0
                heappush(heap, (points + lost, order, True, request))

    def remedy(self, request: Request, now_s: float) -> Remedy:
        """Swap where that is quicker than to compute again.

        Reject what has given no token yet and would miss its deadline either way, if its class is rejected when late
        and another pod may still meet it.
        """
        if self.swap.quicker(request):
            return Remedy.SWAP
        if request.generated == 0 and self._outlook.rejects(request) and self._loses_deadline(request, now_s):
            return Remedy.REJECT
        return Remedy.RECOMPUTE

    def _points(self, request: Request, least: Account | None) -> float:
        """Points without the deadline; `least` is the account of the least served tenant that waits."""
        settings = self._settings
        own_blocks, to_recompute = self._kv.to_lose(request)
        come_back = settings.recompute_points * to_recompute
        if self.swap.fits(request):
            come_back = min(come_back, settings.swap_points * request.computed)
        debt = max(0.0, request.account.counter - least.counter) if least else 0.0
        nearly = request.generated / (request.generated + self._outlook.output_left(request))
        gained = settings.block_points * own_blocks + settings.debt_points * debt
        return gained - come_back - settings.nearly_points * nearly

    def _loses_deadline(self, request: Request, now_s: float) -> bool:
        """Whether a deadline that is not out of reach now would be, after computing again."""
        if request.deadline_s is None or self._outlook.reach(request, now_s) is Reach.UNREACHABLE:
            return False
        again_s = now_s + self._outlook.prefill_s(self._kv.to_recompute(request))
        return self._outlook.reach(request, again_s) is Reach.UNREACHABLE
