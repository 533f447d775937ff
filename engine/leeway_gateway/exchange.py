"""One request and its answer, as the gateway watches them pass."""

import time
from dataclasses import dataclass, field

from leeway_core.verdict import Outcome, Timeline


@dataclass(slots=True)
class Exchange:
    """What is noted of a request until it ends; times are of the monotonic clock."""

    arrival_s: float = field(default_factory=time.monotonic)
    objective: str = ""
    """Name of the class that it belongs to; empty where no objective holds for it."""
    budget_s: float | None = None
    """Seconds from its arrival until its last token is due."""
    output_s: list[float] = field(default_factory=list)
    tokens: int | None = None
    outcome: Outcome | None = "cancelled"
    """None if the request was at fault, so that it counts for nothing."""

    def left_s(self) -> float | None:
        """Seconds that are left for the answer, 0 if it is overdue; None if it is never due."""
        if self.budget_s is None:
            return None
        return max(0.0, self.arrival_s + self.budget_s - time.monotonic())

    def saw_output(self) -> None:
        """Note that a piece of output leaves now."""
        self.output_s.append(time.monotonic())

    def ended(self, status: int) -> None:
        """Note the status of an answer that came whole."""
        if status < 400:
            self.outcome = "finished"
        elif status in (429, 503):
            self.outcome = "rejected"
        elif status < 500:
            self.outcome = None
        else:
            self.outcome = "timed_out" if status == 504 else "failed"

    def timeline(self) -> Timeline | None:
        """Return what is held against the objective now that it has ended."""
        if self.outcome is None:
            return None
        return Timeline(self.arrival_s, self.output_s, time.monotonic(), self.outcome, self.tokens)
