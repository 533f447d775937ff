"""What each tenant was served, as virtual token counters.

Sheng et al., "Fairness in Serving Large Language Models": a tenant pays `input_weight` for each prompt token at
admission and `output_weight` for each generated one, divided by its share. A tenant that comes back is lifted, so that
idle time earns no credit. Beyond the paper, what was paid for prompt tokens that are never computed is given back.
"""

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from itertools import count

from leeway_core.policies import Tenancy

from leeway_engine.scheduling.account import Account, Bookings
from leeway_engine.scheduling.request import Request

_FEW_ACCOUNTS = 64


class Tenants:
    """The accounts of all tenants that wait, run, or were served more than those that wait."""

    def __init__(self, tenancy: Tenancy) -> None:
        """Begin without tenants."""
        self.accounts: dict[str, Account] = {}
        self._bookings = Bookings()
        self._tenancy = tenancy
        self._floor = 0.0
        """Counter of the least served tenant that waited last; it falls only by what that one is paid back."""
        self._floor_of: Account | None = None
        self._heap: list[tuple[float, str, int, Account]] = []
        self._serial = count()
        self._many = _FEW_ACCOUNTS

    def reweigh(self, tenancy: Tenancy, requests: Iterable[Request]) -> None:
        """Charge by other weights from now on; what was charged stays."""
        for account in self.accounts.values():
            account.settle()
        self._tenancy = tenancy
        for request in requests:
            self._price(request)

    def account(self, tenant: str) -> Account:
        """Return the account of a tenant, opened at its first request."""
        account = self.accounts.get(tenant)
        if account is None:
            if len(self.accounts) >= self._many:
                self._close_idle()
            account = self.accounts[tenant] = Account(tenant, self._bookings)
        return account

    def queued(self, request: Request) -> None:
        """Note a request in the queue; the first of its tenant lifts the counter to the least of those that wait.

        Where nobody waits, that is the counter at which the last tenant left the queue.
        """
        account = request.account
        if not account.queued:
            least = self.least_served()
            account.counter = max(account.counter, self._floor if least is None else least.counter)
            if account.ranked_at is None:
                heappush(self._heap, self._entry(account))
        account.queued += 1
        self._price(request)

    def admitted(self, request: Request) -> None:
        """Note a request among the running ones and charge its prompt, once however often it is admitted."""
        account = request.account
        if request.unpaid:
            request.input_charge = self._tenancy.input_weight / self._share(request)
            account.charge(request.input_charge * request.unpaid)
            request.unpaid = 0
        account.running += 1
        self.left_queue(request)

    def left_queue(self, request: Request) -> None:
        """Note that a request waits no more."""
        account = request.account
        account.queued -= 1
        if not account.queued:
            least = self.least_served() or account
            if least.counter >= self._floor:
                self._floor, self._floor_of = least.counter, least

    def begin_decoding(self, request: Request) -> None:
        """Charge a running request for each token that it generates from now on, its newest included."""
        request.account.begin_decoding(request)

    def left_running(self, request: Request) -> None:
        """Note that a request runs no more; what was computed of it must still be in KV."""
        request.account.end_decoding(request)
        request.account.running -= 1

    def booked(self) -> None:
        """Note that those that decode have generated tokens."""
        self._bookings.count += 1

    def refund(self, request: Request) -> None:
        """Give back what was charged for prompt tokens of an ended request that were never in KV for it."""
        refund = request.input_charge * request.unreached
        if not refund:
            return
        account = request.account
        account.counter -= refund
        if account is self._floor_of:
            self._floor -= refund
        if account.ranked_at is not None and account.ranked_at > account.counter:
            heappush(self._heap, self._entry(account))

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
            counter, _, _, account = heap[0]
            if counter != account.ranked_at:
                heappop(heap)  # a refund has put another in its place
            elif not account.queued:
                heappop(heap)
                account.ranked_at = None
            elif counter < account.counter:
                # Whatever makes a counter less puts an entry in front, so an old one can only stand too far in front.
                heapreplace(heap, self._entry(account))
            else:
                return account
        return None

    def _entry(self, account: Account) -> tuple[float, str, int, Account]:
        """Return what stands for an account in the heap from now on."""
        account.ranked_at = account.counter
        return account.counter, account.tenant, next(self._serial), account

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
        least = self.least_served()
        lift = self._floor if least is None else min(self._floor, least.counter)
        for account in list(self.accounts.values()):
            here = account.queued or account.running or account.ranked_at is not None
            if not here and account.counter <= lift:
                del self.accounts[account.tenant]
        self._many = 2 * len(self.accounts) + _FEW_ACCOUNTS
