"""What was seen of the profile while the demonstration ran."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leeway_demo.cluster import Cluster

WINDOW = "30s"
_LATENCY = "histogram_quantile(0.95, sum by (objective, le) (rate(leeway_gateway_{kind}_seconds_bucket[{window}])))"
_ATTAINMENT = (
    'sum by (objective) (rate(leeway_gateway_verdicts_total{{result="met"}}[{window}]))'
    ' / sum by (objective) (rate(leeway_gateway_verdicts_total{{result=~"met|missed"}}[{window}]))'
)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the tuner that changed something."""

    sequence: int
    time_s: float
    action: str
    message: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The profile at one moment. What Prometheus has no value for is absent."""

    time_s: float
    summary: str
    knobs: Mapping[str, int]
    ttft_s: Mapping[str, float] = field(default_factory=dict)
    itl_s: Mapping[str, float] = field(default_factory=dict)
    attainment: Mapping[str, float] = field(default_factory=dict)


class History:
    """Moments and decisions, in order of time."""

    def __init__(self, cluster: Cluster) -> None:
        """Look at the profile of this cluster."""
        self.moments: list[Moment] = []
        self._cluster = cluster
        self._decisions: dict[int, Decision] = {}

    @property
    def decisions(self) -> Sequence[Decision]:
        """Every decision that was seen in the profile's status."""
        return [decision for _, decision in sorted(self._decisions.items())]

    @property
    def knob_changes(self) -> int:
        """How often the knobs in force changed."""
        generations = [moment.knobs["generation"] for moment in self.moments if moment.knobs]
        return generations[-1] - generations[0] if generations else 0

    def look(self) -> Moment:
        """Look once."""
        status: Mapping[str, Any] = self._cluster.profile().get("status", {})
        for each in status.get("decisions", ()):
            time_s = datetime.fromisoformat(each["time"]).timestamp()
            self._decisions[each["sequence"]] = Decision(each["sequence"], time_s, each["action"], each["message"])
        moment = Moment(
            time_s=time.time(),
            summary=status.get("summary", ""),
            knobs=status.get("knobs", {}).get("desired", {}),
            ttft_s=self._by_objective(_LATENCY.format(kind="ttft", window=WINDOW)),
            itl_s=self._by_objective(_LATENCY.format(kind="itl", window=WINDOW)),
            attainment=self._by_objective(_ATTAINMENT.format(window=WINDOW)),
        )
        self.moments.append(moment)
        return moment

    def _by_objective(self, expression: str) -> dict[str, float]:
        found = self._cluster.query(expression)
        return {labels["objective"]: value for labels, value in found if math.isfinite(value)}
