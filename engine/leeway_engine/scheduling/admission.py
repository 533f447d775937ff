"""Whether a request is taken at its arrival; in which order the taken ones run is the scheduler's matter."""

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple

from leeway_core.policies import AdmissionLimits


class Answer(Enum):
    """What becomes of an arrival."""

    ACCEPT = "accept"
    QUEUE_UPSTREAM = "queue_upstream"
    """Keep it before this pod for a while: 503 with Retry-After."""
    ROUTE = "route"
    """Send it to another pod: 503 with Retry-After."""
    REJECT = "reject"
    """The caller must slow down (429), or no pod of this size can hold it (400)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer; `reason` is for programs, `message` for people. Only an accepted one has no reason."""

    answer: Answer
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None
    """When to come again; None where that is of no use."""


class Arrival(NamedTuple):
    """A request at the door, in tokens."""

    uncached_tokens: int
    """Prompt tokens that are not in KV."""
    prompt_tokens: int
    max_tokens: int
    expected_output: int


class Occupancy(NamedTuple):
    """How full the pod is, with the tenant's part of it."""

    capacity_tokens: int
    """KV tokens of the whole pool."""
    expected_tokens: int
    """KV tokens that running and waiting requests are expected to fill."""
    waiting_requests: int
    tenant_requests: int
    tenant_waiting_tokens: int
    queue_s: float
    """Predicted time until a new request gets its first chunk."""
    end_s: float
    """Predicted time until one of those that run ends."""
    tenant_end_s: float
    """Predicted time until one of the tenant's ends, where it has as many as it may; else that until one can start."""


ACCEPTED = Verdict(Answer.ACCEPT)


class Admission:
    """Checks from the surest to the mildest: never fits, queue and tenant limits, delay, KV."""

    def __init__(self, limits: AdmissionLimits | None) -> None:
        """Without limits only what can never fit is refused."""
        self._limits = limits

    @property
    def limited(self) -> bool:
        """Whether anything but size is looked at."""
        return self._limits is not None

    def is_full(self, tenant_requests: int) -> bool:
        """Whether a tenant with so many requests here may have no more."""
        most = self._limits.tenant_requests if self._limits else None
        return most is not None and tenant_requests >= most

    def fits(self, arrival: Arrival, capacity_tokens: int) -> Verdict:
        """Refuse what the empty pod could not hold. The last token is never fed back, so it needs no KV."""
        if arrival.prompt_tokens + arrival.max_tokens - 1 <= capacity_tokens:
            return ACCEPTED
        return Verdict(
            Answer.REJECT,
            "kv_exceeded",
            f"the prompt of {arrival.prompt_tokens} tokens and max_tokens {arrival.max_tokens} need more than "
            f"the {capacity_tokens} tokens of KV cache that this pod has; shorten one of them",
        )

    def judge(self, arrival: Arrival, pod: Occupancy) -> Verdict:
        """Answer an arrival that the empty pod could hold."""
        limits = self._limits
        if limits is None:
            return ACCEPTED
        return self._counted(limits, arrival, pod) or self._predicted(limits, arrival, pod) or ACCEPTED

    def _counted(self, limits: AdmissionLimits, arrival: Arrival, pod: Occupancy) -> Verdict | None:
        """Limits on what is here."""
        if self.is_full(pod.tenant_requests):
            message = f"this tenant already has {pod.tenant_requests} requests here; let some of them end first"
            return Verdict(Answer.REJECT, "tenant_requests", message, _moment(pod.tenant_end_s))
        tokens = pod.tenant_waiting_tokens + arrival.uncached_tokens
        # A tenant with nothing in the queue may always have one request, however long.
        if pod.tenant_waiting_tokens and tokens > (limits.tenant_waiting_tokens or inf):
            message = f"this tenant would have {tokens} prompt tokens waiting here; let some of them be computed first"
            return Verdict(Answer.REJECT, "tenant_tokens", message, _moment(pod.queue_s))
        if limits.waiting_requests is not None and pod.waiting_requests >= limits.waiting_requests:
            message = f"{pod.waiting_requests} requests already wait in this pod; send it to another or come again"
            return Verdict(Answer.ROUTE, "queue_full", message, _moment(pod.queue_s))
        return None

    def _predicted(self, limits: AdmissionLimits, arrival: Arrival, pod: Occupancy) -> Verdict | None:
        """Limits on what is expected."""
        if limits.queue_delay_s is not None and pod.queue_s > limits.queue_delay_s:
            message = f"it would wait about {pod.queue_s:.1f} s in this pod; come again later"
            return Verdict(Answer.REJECT, "queue_delay", message, _moment(pod.queue_s - limits.queue_delay_s))
        tokens = pod.expected_tokens + arrival.uncached_tokens + arrival.expected_output
        # An empty pod takes whatever fits.
        if pod.expected_tokens and tokens * 100 > (limits.kv_percent or inf) * pod.capacity_tokens:
            message = f"this pod expects to hold {tokens} tokens in a KV cache of {pod.capacity_tokens}; try another"
            return Verdict(Answer.ROUTE, "kv_headroom", message, _moment(pod.end_s))
        if limits.upstream_delay_s is not None and pod.queue_s > limits.upstream_delay_s:
            message = f"it would wait about {pod.queue_s:.1f} s in this pod, and had better wait where it can be placed"
            delay_s = _moment(pod.queue_s - limits.upstream_delay_s)
            return Verdict(Answer.QUEUE_UPSTREAM, "queue_upstream", message, delay_s)
        return None


def _moment(seconds: float) -> float:
    """A time to wait, at least long enough not to be asked again at once."""
    return max(0.1, seconds)
