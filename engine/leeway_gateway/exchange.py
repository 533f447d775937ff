"""One request and its answer, as the gateway watches them pass."""

import time
from dataclasses import dataclass, field
from math import inf

from leeway_core.verdict import Outcome, Timeline

_OUTCOMES: dict[str, Outcome] = {"timed_out": "timed_out", "aborted": "cancelled"}
"""What a pod's errors in mid-stream mean; any other is a failure."""


@dataclass(slots=True)
class Exchange:
    """What is noted of a request until it ends; times are of the monotonic clock."""

    arrival_s: float = field(default_factory=time.monotonic)
    objective: str = ""
    """Name of the class that it belongs to; empty where no objective holds for it."""
    budget_s: float | None = None
    """Seconds from its arrival until its last token is due."""
    timeout_s: float = inf
    """Seconds from its arrival after which it is ended, wherever it is."""
    output_s: list[float] = field(default_factory=list)
    tokens: int | None = None
    outcome: Outcome | None = "cancelled"
    """None if the request was at fault, so that it counts for nothing."""

    def left_s(self) -> float | None:
        """Seconds that are left for the answer, 0 if it is overdue; None if it is never due."""
        if self.budget_s is None:
            return None
        return max(0.0, self.arrival_s + self.budget_s - time.monotonic())

    def times_out_in_s(self) -> float:
        """Seconds until it is ended; 0 or less once it is to be, infinite if it never is."""
        return self.arrival_s + self.timeout_s - time.monotonic()

    def saw_output(self) -> None:
        """Note that a piece of output leaves now."""
        self.output_s.append(time.monotonic())

    def ended(self, status: int) -> None:
        """Note the status of an answer that came whole."""
        if status < 400:
            self.outcome = "finished"
        elif status in (429, 503):
            self.outcome = "rejected"
        elif status in (408, 504):
            self.outcome = "timed_out"
        elif status == 499:
            self.outcome = "cancelled"
        else:
            self.outcome = None if status < 500 else "failed"

    def ended_by(self, code: str) -> None:
        """Note the code of an error that ended a stream."""
        self.outcome = _OUTCOMES.get(code, "failed")

    def timeline(self) -> Timeline | None:
        """Return what is held against the objective now that it has ended."""
        if self.outcome is None:
            return None
        return Timeline(self.arrival_s, self.output_s, time.monotonic(), self.outcome, self.tokens)
