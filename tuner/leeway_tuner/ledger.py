"""The exploration budget: how many requests trials may cost."""

import math

from leeway_core.model import Model
from leeway_core.objective import Objective
from pydantic import Field

from leeway_tuner.evidence import Window, target

_CREDIT_REQUESTS = 1000.0
"""A profile that has just begun may spend as if it had served so many."""
_MEMORY_S = 86_400.0
"""What is older than a day hardly counts."""


class Entry(Model):
    """One objective's account."""

    requests: float = 0.0
    spent: float = 0.0
    """Requests that missed under candidates and would not have under the incumbent."""


class Ledger(Model):
    """What trials have cost each objective, and what it has served in all."""

    entries: dict[str, Entry] = Field(default_factory=dict)
    updated_s: float = 0.0

    def with_window(self, measured: Window, now_s: float, *, instead_of: Window | None = None) -> "Ledger":
        """Book a window; one of a candidate costs what it missed more than the incumbent would have."""
        fade = math.exp(-max(0.0, now_s - self.updated_s) / _MEMORY_S)
        entries = dict(self.entries)
        for name, tally in measured.objectives.items():
            entry = entries.get(name, Entry())
            cost = 0.0
            if instead_of is not None and name in instead_of.objectives:
                cost = instead_of.objectives[name].share * tally.ended - tally.met
            entries[name] = Entry(
                requests=entry.requests * fade + tally.ended, spent=max(0.0, entry.spent * fade + cost)
            )
        return Ledger(entries=entries, updated_s=now_s)

    def overspent(self, objectives: tuple[Objective, ...], percent: int) -> str | None:
        """Return the objective whose trials may cost no more, if there is one."""
        for objective in objectives:
            entry = self.entries.get(objective.name, Entry())
            errors = (1 - target(objective)) * (entry.requests + _CREDIT_REQUESTS)
            if entry.spent >= errors * percent / 100:
                return objective.name
        return None
