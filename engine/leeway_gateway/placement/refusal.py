"""What a request does that pods refused: where it may go next, and how long it is held until then."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

PAUSE_S = 0.25
"""How long a pod that named no time, or did not answer, is not asked again."""

DEADLINE_UNREACHABLE = "deadline_unreachable"
"""What a pod says of a request that waiting can only make later."""

Pod = TypeVar("Pod", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod did not take a request, and when it may be asked again; times are of the monotonic clock."""

    again_s: float
    code: str = ""
    """The pod's reason; empty where it gave none."""

    @property
    def final(self) -> bool:
        """Whether the request is to be held no longer, wherever it was refused besides."""
        return self.code == DEADLINE_UNREACHABLE


def refusal(now_s: float, code: str = "", retry_after_s: float | None = None) -> Refusal:
    """Return the refusal of a pod that answered, or failed to, at this time."""
    return Refusal(now_s + max(PAUSE_S, retry_after_s or 0.0), code)


def passed_over(refusals: Mapping[Pod, Refusal], now_s: float, left_s: float) -> set[Pod]:
    """Return the pods not to be asked now, of those that refused; `left_s` is what is left of the wait.

    A pod is asked again once its time has come. When the wait is over, and after a final refusal, each is asked once
    at most.
    """
    if left_s <= 0 or _is_final(refusals):
        return set(refusals)
    return {pod for pod, refused in refusals.items() if now_s < refused.again_s}


def hold_s(refusals: Mapping[Pod, Refusal], now_s: float, left_s: float) -> float | None:
    """Return how long to hold a request that no pod may be asked for now; None if it is to be answered."""
    if left_s <= 0 or _is_final(refusals):
        return None
    # What may be asked by now is no longer among the pods.
    return min([left_s, *(refused.again_s - now_s for refused in refusals.values() if refused.again_s > now_s)])


def _is_final(refusals: Mapping[Pod, Refusal]) -> bool:
    return any(refused.final for refused in refusals.values())
