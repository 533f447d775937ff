"""Which running request loses its KV when blocks run out, and what becomes of it."""

from collections.abc import Collection
from enum import Enum

from leeway_core.policies import Victim

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

    def __init__(self, settings: Victim, outlook: Outlook, tenants: Tenants, swap: SwapCost) -> None:
        """Judge by these weights, predictions, debts and costs."""
        self._settings = settings
        self._outlook = outlook
        self._tenants = tenants
        self._swap = swap

    def choose(self, running: Collection[Request], now_s: float) -> Request:
        """Return the request with the best score, the latest arrival among equals."""
        return max(running, key=lambda request: (self.score(request, now_s), request.order))

    def score(self, request: Request, now_s: float) -> float:
        """Points for taking this request's KV."""
        settings = self._settings
        come_back = settings.recompute_points * request.computed
        if self._swap.fits(request):
            come_back = min(come_back, settings.swap_points * request.computed)
        points = settings.block_points * len(request.blocks) - come_back
        points += settings.debt_points * self._tenants.debt(request.account)
        left = self._outlook.output_left(request)
        points -= settings.nearly_points * request.generated / (request.generated + left)
        if self._loses_deadline(request, now_s):
            points -= settings.deadline_points
        return points

    def remedy(self, request: Request, now_s: float) -> Remedy:
        """Swap where that is quicker than to compute again.

        Reject what has given no token yet and would miss its deadline either way, if its class is rejected when late
        and another pod may still meet it.
        """
        if self._swap.quicker(request):
            return Remedy.SWAP
        if request.generated == 0 and self._outlook.rejects(request) and self._loses_deadline(request, now_s):
            return Remedy.REJECT
        return Remedy.RECOMPUTE

    def _loses_deadline(self, request: Request, now_s: float) -> bool:
        """Whether a deadline that is not out of reach now would be, after computing again."""
        if request.deadline_s is None or self._outlook.reach(request, now_s) is Reach.UNREACHABLE:
            return False
        return self._outlook.reach(request, now_s + self._outlook.prefill_s(request.computed)) is Reach.UNREACHABLE
