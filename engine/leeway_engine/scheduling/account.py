"""What a tenant was served."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leeway_engine.scheduling.request import Request


class Bookings:
    """How many iterations were booked for all tenants."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        """None was booked yet."""
        self.count = 0


class Account:
    """One tenant's counter, in weighted tokens, how many of its requests wait and run, and the tokens that wait.

    Generated tokens are charged when the counter is read: so a booking takes no time for tenants that nobody looks at.
    """

    __slots__ = (
        "_bookings",
        "_charged",
        "_decoding",
        "_settled",
        "queued",
        "ranked_at",
        "running",
        "tenant",
        "waiting_tokens",
    )

    def __init__(self, tenant: str, bookings: Bookings | None = None) -> None:
        """Nothing was served yet."""
        self.tenant = tenant
        self.queued = 0
        self.running = 0
        self.waiting_tokens = 0
        self.ranked_at: float | None = None
        """Counter of its entry in the tenants' heap; None if there is none."""
        self._bookings = bookings or Bookings()
        self._settled = 0
        """Bookings up to which all that decode were charged."""
        self._charged = 0.0
        self._decoding: dict[Request, None] = {}

    @property
    def counter(self) -> float:
        """What the tenant was charged, up to now."""
        if self._settled != self._bookings.count:
            self.settle()
        return self._charged

    @counter.setter
    def counter(self, weighted_tokens: float) -> None:
        self._charged = weighted_tokens

    def charge(self, weighted_tokens: float) -> None:
        """Charge for what is known at once, as a prompt."""
        self._charged += weighted_tokens

    def settle(self) -> None:
        """Charge for all that was generated."""
        self._settled = self._bookings.count
        self._charge_output(self._decoding)

    def begin_decoding(self, request: "Request") -> None:
        """Charge for what a request generates from now on, its newest token included."""
        self._decoding[request] = None

    def end_decoding(self, request: "Request") -> None:
        """Charge for what a request has generated, and for nothing after."""
        if request in self._decoding:
            self._charge_output((request,))
            del self._decoding[request]

    def _charge_output(self, requests: Iterable["Request"]) -> None:
        """Charge the tokens that are not charged for yet; each was generated in an iteration, with one more in KV."""
        charged = self._charged
        for request in requests:
            generated = request.generated
            tokens = generated - request.charged
            if tokens:
                request.charged = generated
                resident = request.computed * tokens - tokens * (tokens - 1) / 2
                charged += request.token_charge * tokens + request.residency_charge * resident
        self._charged = charged
