"""Whether a request met its objective: the arithmetic of attainment.

Times are those at which output left for the client, so several tokens in one chunk arrived together: the chunk counts
as one piece of output, and the wait for it as one gap. A server gains nothing by sending in bursts. A response that is
not streamed is one piece of output: its TTFT is the time of the whole response, and it has no gaps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from leeway_core.objective import Objective

Bound = Literal["ttft", "itl", "tpot", "deadline"]
Outcome = Literal["finished", "rejected", "failed", "timed_out", "cancelled"]
Result = Literal["met", "missed", "cancelled"]

REASONS: Mapping[Result, Sequence[str]] = {
    "met": ("",),
    "missed": (*get_args(Bound), "rejected", "failed", "timed_out"),
    "cancelled": ("",),
}
"""Every reason that a verdict can have, by its result."""

_FIELDS: Mapping[Bound, str] = {
    "ttft": "ttft_ms",
    "itl": "itl_ms",
    "tpot": "tpot_ms",
    "deadline": "deadline_seconds",
}


def bounds_of(objective: Objective) -> list[Bound]:
    """Return the bounds that an objective has."""
    return [bound for bound, field in _FIELDS.items() if getattr(objective, field) is not None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was seen of one request; all times on one clock, in seconds."""

    arrival_s: float
    output_s: Sequence[float]
    """When each piece of output left, in order."""
    end_s: float
    outcome: Outcome
    tokens: int | None = None
    """Output tokens, where they are known; otherwise each piece of output counts as one."""

    @property
    def ttft_s(self) -> float | None:
        """Time from arrival to the first output, or to the end of a response without output."""
        if self.output_s:
            return self.output_s[0] - self.arrival_s
        return self.end_s - self.arrival_s if self.outcome == "finished" else None

    @property
    def gaps_s(self) -> list[float]:
        """Waits between consecutive pieces of output."""
        return [later - earlier for earlier, later in zip(self.output_s, self.output_s[1:], strict=False)]

    @property
    def tpot_s(self) -> float:
        """Mean wait per output token after the first."""
        if len(self.output_s) < 2:
            return 0.0
        return (self.output_s[-1] - self.output_s[0]) / (max(self.tokens or 0, len(self.output_s)) - 1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a request counts: `cancelled` ones are left out of attainment."""

    result: Result
    reason: str
    """Of a miss: the first bound that was broken, or the outcome of a request that did not finish."""
    bounds: Mapping[Bound, bool]
    """The objective's bounds, as far as they are decided, and whether each was held."""


def judge(objective: Objective, timeline: Timeline) -> Verdict:
    """Hold a request against its objective.

    A request that was rejected, failed or timed out misses all bounds. One that its client cancelled is a miss only
    if a bound was broken by then.
    """
    held = _held(objective, timeline)
    broken = [bound for bound, kept in held.items() if not kept]
    if timeline.outcome == "cancelled":
        return Verdict("missed", broken[0], dict.fromkeys(broken, False)) if broken else Verdict("cancelled", "", {})
    if timeline.outcome != "finished":
        return Verdict("missed", timeline.outcome, dict.fromkeys(held, False))
    return Verdict("missed", broken[0], held) if broken else Verdict("met", "", held)


def _held(objective: Objective, timeline: Timeline) -> dict[Bound, bool]:
    elapsed_s = timeline.end_s - timeline.arrival_s
    held: dict[Bound, bool] = {}
    if objective.ttft_ms is not None:
        ttft_s = elapsed_s if timeline.ttft_s is None else timeline.ttft_s
        held["ttft"] = ttft_s * 1e3 <= objective.ttft_ms
    if objective.itl_ms is not None:
        gaps_s = timeline.gaps_s
        if timeline.outcome == "cancelled" and timeline.output_s:
            gaps_s.append(timeline.end_s - timeline.output_s[-1])
        held["itl"] = quantile(gaps_s, objective.quantile_percent) * 1e3 <= objective.itl_ms
    if objective.tpot_ms is not None:
        held["tpot"] = timeline.tpot_s * 1e3 <= objective.tpot_ms
    if objective.deadline_seconds is not None:
        held["deadline"] = elapsed_s <= objective.deadline_seconds
    return held


def quantile(values: Sequence[float], percent: int) -> float:
    """Return the nearest-rank quantile: the smallest value that `percent` of the values do not exceed; 0 of none."""
    if not values:
        return 0.0
    rank = -(-percent * len(values) // 100)
    return sorted(values)[rank - 1]
