"""A stretch of the demonstration under one way of setting the knobs, and what it showed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leeway_core.objective import Objective
from leeway_core.verdict import Verdict, judge
from leeway_load.exchange import Exchange
from leeway_load.report import Report, report

from leeway_demo.traffic import WARM_UP_S


@dataclass(frozen=True, slots=True)
class Phase:
    """Exchanges of one replay. `began_s` is the Unix time at which its first request was due."""

    title: str
    began_s: float
    exchanges: Sequence[Exchange]
    objectives: Mapping[str, Objective]

    @property
    def counted(self) -> list[Exchange]:
        """Those after the warm-up."""
        return [one for one in self.exchanges if one.request.send_s >= WARM_UP_S]

    @property
    def met(self) -> dict[int, bool]:
        """Whether each request that counts met its objective, by its number in the trace."""
        return {one.request.index: self.verdict(one).result == "met" for one in self.counted}

    @property
    def attainment(self) -> float:
        """Share of the requests that met their objective."""
        return sum(self.met.values()) / len(self.met)

    @property
    def report(self) -> Report:
        """Latencies and attainment."""
        return report(self.counted, list(self.objectives.values()))

    @property
    def end_s(self) -> float:
        """Unix time at which the last request was over."""
        return self.began_s + max(one.timeline.end_s for one in self.exchanges)

    def verdict(self, one: Exchange) -> Verdict:
        """Judge an exchange as its client saw it."""
        return judge(self.objectives[one.request.class_name], one.timeline)
