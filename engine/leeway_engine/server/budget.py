"""The time that a client has left for an answer."""

from math import isfinite

from leeway_core.headers import BUDGET_HEADER

from leeway_engine.server.errors import ApiError


def deadline_s(budget: str | None, arrival_s: float) -> float | None:
    """Return when the answer is due, from the header with the seconds left at arrival; None without one.

    Raises ApiError (400) if the header holds no number of seconds.
    """
    if budget is None:
        return None
    try:
        left_s = float(budget)
    except ValueError:
        left_s = -1.0
    if not isfinite(left_s) or left_s < 0:
        raise ApiError(
            400, f"the header {BUDGET_HEADER} must be seconds, 0 or more, not {budget!r}", param=BUDGET_HEADER
        )
    return arrival_s + left_s
