"""What each tenant was served, as virtual token counters.

Sheng et al., "Fairness in Serving Large Language Models": a tenant pays `input_weight` for each prompt token at
admission and `output_weight` for each generated one, divided by its share. A tenant that comes back is lifted, so that
idle time earns no credit.
"""

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace

from leeway_core.policies import Tenancy

from leeway_engine.scheduling.account import Account
from leeway_engine.scheduling.request import Request

_FEW_ACCOUNTS = 64


class Tenants:
    """The accounts of all tenants that wait, run, or were served more than those that wait."""

    def __init__(self, tenancy: Tenancy) -> None:
        """Begin without tenants."""
        self.accounts: dict[str, Account] = {}
        self._tenancy = tenancy
        self._floor = 0.0
        """Counter of the least served tenant that waited last; it never falls."""
        self._heap: list[tuple[float, str, Account]] = []
        self._many = _FEW_ACCOUNTS

    def reweigh(self, tenancy: Tenancy, requests: Iterable[Request]) -> None:
        """Charge by other weights from now on; what was charged stays."""
        self._tenancy = tenancy
        for request in requests:
            self._price(request)

    def account(self, tenant: str) -> Account:
        """Return the account of a tenant, opened at its first request."""
        account = self.accounts.get(tenant)
        if account is None:
            if len(self.accounts) >= self._many:
                self._close_idle()
            account = self.accounts[tenant] = Account(tenant)
        return account

    def queued(self, request: Request) -> None:
        """Note a request in the queue; the first of its tenant lifts the counter to the least of those that wait.

        Where nobody waits, that is the counter at which the last tenant left the queue.
        """
        account = request.account
        if not account.queued:
            least = self.least_served()
            account.counter = max(account.counter, self._floor if least is None else least.counter)
            if not account.ranked:
                account.ranked = True
                heappush(self._heap, (account.counter, account.tenant, account))
        account.queued += 1
        self._price(request)

    def admitted(self, request: Request) -> None:
        """Note a request among the running ones and charge its prompt, once however often it is admitted."""
        account = request.account
        account.counter += self._tenancy.input_weight * request.unpaid / self._share(request)
        request.unpaid = 0
        account.running += 1
        self.left_queue(request)

    def left_queue(self, request: Request) -> None:
        """Note that a request waits no more."""
        account = request.account
        account.queued -= 1
        if not account.queued:
            least = self.least_served()
            self._floor = max(self._floor, account.counter if least is None else least.counter)

    def left_running(self, request: Request) -> None:
        """Note that a request runs no more."""
        request.account.running -= 1

    def served(self, decodes: Iterable[Request], iterations: int = 1) -> None:
        """Charge each request for one generated token in each of the iterations, the last of which has just ended."""
        if not self._tenancy.residency_weight:
            for request in decodes:
                request.account.counter += request.token_charge * iterations
            return
        growth = iterations * (iterations - 1) / 2
        for request in decodes:
            resident = request.computed * iterations - growth
            request.account.counter += request.token_charge * iterations + request.residency_charge * resident

    def debts(self) -> dict[str, float]:
        """Return what each tenant that waits was served less than the one of them that was served most.

        In weighted tokens, by tenant.
        """
        counters = {account.tenant: account.counter for account in self.accounts.values() if account.queued}
        most = max(counters.values(), default=0.0)
        return {tenant: most - counter for tenant, counter in counters.items()}

    def least_served(self) -> Account | None:
        """Return the tenant with waiting requests that has the smallest counter."""
        heap = self._heap
        while heap:
            counter, tenant, account = heap[0]
            if not account.queued:
                heappop(heap)
                account.ranked = False
            elif counter < account.counter:
                # Counters only grow, so an old entry can only stand too far in front.
                heapreplace(heap, (account.counter, tenant, account))
            else:
                return account
        return None

    def _price(self, request: Request) -> None:
        share = self._share(request)
        request.token_charge = self._tenancy.output_weight / share
        request.residency_charge = self._tenancy.residency_weight / share

    def _share(self, request: Request) -> float:
        tenancy = self._tenancy
        share = tenancy.tenant_shares.get(request.account.tenant, 1.0)
        return share * tenancy.class_shares.get(request.slo_class, 1.0)

    def _close_idle(self) -> None:
        """Forget whom a new account would not differ from: it would be lifted to the same counter."""
        for account in list(self.accounts.values()):
            if not (account.queued or account.running or account.ranked) and account.counter <= self._floor:
                del self.accounts[account.tenant]
        self._many = 2 * len(self.accounts) + _FEW_ACCOUNTS
