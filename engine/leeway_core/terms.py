"""What a request asks for in headers: its class, who it is counted for, and what it is worth."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Self

from leeway_core.headers import (
    BUDGET_HEADER,
    OBJECTIVE_HEADER,
    PRIORITY_HEADER,
    TENANT_HEADER,
    TIMEOUT_HEADER,
    TOOL_WAIT_HEADER,
)

LONGEST_TENANT = 128
MOST_PRIORITY = 100
LONGEST_TOOL_WAIT_S = 600.0


class HeaderError(ValueError):
    """A header with a value that means nothing; `header` is its name, and the message says what it takes."""

    def __init__(self, header: str, takes: str, value: str) -> None:
        """`takes` completes the sentence that the header must be so."""
        super().__init__(f"the header {header} must be {takes}, not {value[:LONGEST_TENANT]!r}")
        self.header = header


@dataclass(frozen=True, slots=True)
class Terms:
    """The headers of one request, read and checked."""

    objective: str | None = None
    """Name of its class; None leaves it to the profile's first objective."""
    tenant: str = ""
    priority: int = 0
    """Points from -`MOST_PRIORITY` to `MOST_PRIORITY`; more go first."""
    budget_s: float | None = None
    """Seconds left at its arrival for the whole answer."""
    tool_wait_s: float = 0.0
    """Seconds for which its KV is kept once it has ended; 0 keeps it for nobody in particular."""
    timeout_s: float | None = None
    """Seconds from its arrival after which it is ended; None never ends it."""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self:
        """Read headers, whose names differ in nothing but their case; raises HeaderError."""
        tenant = headers.get(TENANT_HEADER, "")
        if len(tenant) > LONGEST_TENANT:
            raise HeaderError(TENANT_HEADER, f"a name of at most {LONGEST_TENANT} characters", tenant)
        return cls(
            objective=headers.get(OBJECTIVE_HEADER),
            tenant=tenant,
            priority=_priority(headers.get(PRIORITY_HEADER)),
            budget_s=_seconds(BUDGET_HEADER, headers.get(BUDGET_HEADER), "seconds, 0 or more", float("inf")),
            tool_wait_s=_seconds(
                TOOL_WAIT_HEADER,
                headers.get(TOOL_WAIT_HEADER),
                f"seconds, from 0 to {LONGEST_TOOL_WAIT_S:.0f}",
                LONGEST_TOOL_WAIT_S,
            )
            or 0.0,
            timeout_s=_timeout_s(headers.get(TIMEOUT_HEADER)),
        )


def _priority(value: str | None) -> int:
    if value is None:
        return 0
    try:
        points = int(value)
    except ValueError:
        points = MOST_PRIORITY + 1
    if abs(points) > MOST_PRIORITY:
        takes = f"a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}"
        raise HeaderError(PRIORITY_HEADER, takes, value)
    return points


def _timeout_s(value: str | None) -> float | None:
    takes = "seconds, more than 0"
    seconds = _seconds(TIMEOUT_HEADER, value, takes, float("inf"))
    if seconds == 0 and value is not None:
        raise HeaderError(TIMEOUT_HEADER, takes, value)
    return seconds


def _seconds(header: str, value: str | None, takes: str, most: float) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or not 0 <= seconds <= most:
        raise HeaderError(header, takes, value)
    return seconds
