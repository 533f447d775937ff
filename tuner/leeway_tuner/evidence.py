"""How good knobs are: requests met and ended in their windows, and what that says of two settings."""

import math
from typing import Annotated

from leeway_core.decision import Evidence
from leeway_core.model import Model
from leeway_core.objective import Objective
from leeway_core.reading import Value
from leeway_core.snapshot import Readings
from pydantic import Field

RISK = 0.02
"""Chance that a candidate which is no better is ever taken for one."""
BREACH_RISK = 0.03
"""Chance that a candidate which is no worse is ever taken back for it: by what has settled, and once more by all."""
_TYPICAL_INFORMATION = 25.0
"""Where the bounds are tightest: at about one window of twenty requests on either side."""
_GOODPUT_WEIGHT = 0.1
"""A goodput higher by a tenth counts as an attainment higher by a hundredth."""

Count = Annotated[float, Field(ge=0)]


class Tally(Model):
    """Requests that ended, and those of them that met their objective."""

    met: Count
    ended: Count

    @classmethod
    def of(cls, value: Value) -> "Tally":
        """Return what a reading of attainment rests on."""
        return cls(met=min(1.0, max(0.0, value.value)) * value.samples, ended=value.samples)

    def plus(self, other: "Tally") -> "Tally":
        """Return both together."""
        return Tally(met=self.met + other.met, ended=self.ended + other.ended)

    @property
    def share(self) -> float:
        """Share that met; of none, 0."""
        return self.met / self.ended if self.ended else 0.0

    @property
    def likely(self) -> float:
        """What the share is likely to be when more is seen."""
        return (self.met + 1) / (self.ended + 2)

    @property
    def variance(self) -> float:
        """How uncertain that is."""
        return self.likely * (1 - self.likely) / (self.ended + 3)


class Window(Model):
    """What was seen of knobs in all their windows together."""

    total: Tally
    objectives: dict[str, Tally]
    span_s: Count

    @classmethod
    def of(cls, readings: Readings) -> "Window | None":
        """Return what the readings tell, or None while they have no values."""
        total, goodput = readings.attainment, readings.goodput_rps
        if not isinstance(total, Value) or not isinstance(goodput, Value):
            return None
        tallies = {name: Tally.of(each) for name, each in readings.objectives.items() if isinstance(each, Value)}
        return cls(total=Tally.of(total), objectives=tallies, span_s=readings.span_s)

    def plus(self, other: "Window | None") -> "Window":
        """Return both together."""
        if other is None:
            return self
        none = Tally(met=0, ended=0)
        names = self.objectives | other.objectives
        return Window(
            total=self.total.plus(other.total),
            objectives={name: self.objectives.get(name, none).plus(other.objectives.get(name, none)) for name in names},
            span_s=self.span_s + other.span_s,
        )

    @property
    def goodput_rps(self) -> float:
        """Requests a second that met their objective, taken not to be 0."""
        return (self.total.met + 1) / max(self.span_s, 1.0)

    def meets(self, objectives: tuple[Objective, ...]) -> bool:
        """Tell whether every objective that was measured reaches its target."""
        return all(
            self.objectives[each.name].share >= target(each) for each in objectives if each.name in self.objectives
        )


class Difference(Model):
    """By how much the candidate is better, with bounds that hold at all times together: looking often costs nothing."""

    mean: float
    information: float

    def margin(self, risk: float) -> float:
        """Return how far the truth may be to one side: half the width of a normal-mixture confidence sequence."""
        seen = self.information + _TYPICAL_INFORMATION
        return math.sqrt(seen * math.log(seen / (_TYPICAL_INFORMATION * (2 * risk) ** 2))) / self.information

    def low(self, risk: float = RISK) -> float:
        """Return what it is at least."""
        return self.mean - self.margin(risk)

    def high(self, risk: float = RISK) -> float:
        """Return what it is at most."""
        return self.mean + self.margin(risk)


def target(objective: Objective) -> float:
    """Return the share of requests that must meet an objective."""
    return float(objective.target_percent) / 100


def score(candidate: Window, incumbent: Window) -> Difference:
    """Compare attainment and goodput. Windows of both alternate, so what drifts meanwhile cancels."""
    gain = candidate.total.likely - incumbent.total.likely
    ratio = math.log(candidate.goodput_rps / incumbent.goodput_rps)
    return Difference(
        mean=gain + _GOODPUT_WEIGHT * min(1.0, max(-1.0, ratio)),
        information=1 / (_score_variance(candidate.total) + _score_variance(incumbent.total)),
    )


def breach(candidate: Window, incumbent: Window, objectives: tuple[Objective, ...]) -> str | None:
    """Return the objective that the candidate misses and that fares worse by more than chance, if there is one."""
    for objective in objectives:
        mine, other = candidate.objectives.get(objective.name), incumbent.objectives.get(objective.name)
        if mine is None or other is None or mine.share >= target(objective):
            continue
        if _attainment(mine, other).high(BREACH_RISK) < 0:
            return objective.name
    return None


def numbers(candidate: Window | None, incumbent: Window | None) -> Evidence:
    """Return the evidence of a decision, as far as there is any."""
    known = Evidence(
        incumbent_attainment=incumbent.total.share if incumbent else None,
        incumbent_requests=round(incumbent.total.ended) if incumbent else None,
        candidate_attainment=candidate.total.share if candidate else None,
        candidate_requests=round(candidate.total.ended) if candidate else None,
    )
    if candidate is None or incumbent is None:
        return known
    found = score(candidate, incumbent)
    return known.model_copy(
        update={"difference": found.mean, "difference_low": found.low(), "difference_high": found.high()}
    )


def _score_variance(tally: Tally) -> float:
    """Goodput is attainment times the rate of requests, so a lucky window has more of both."""
    both = 1 + _GOODPUT_WEIGHT / tally.likely
    return both**2 * tally.variance + _GOODPUT_WEIGHT**2 / (tally.ended + 1)


def _attainment(candidate: Tally, incumbent: Tally) -> Difference:
    return Difference(
        mean=candidate.likely - incumbent.likely, information=1 / (candidate.variance + incumbent.variance)
    )
