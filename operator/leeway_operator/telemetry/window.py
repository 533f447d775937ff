"""Judges what Prometheus answered: pure functions from series to readings."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from leeway_core.reading import Error, Idle, Missing, Reading, Stale, TooFewSamples, Value, is_lost
from leeway_core.snapshot import Readings, Telemetry

from leeway_operator.telemetry.series import Series, increase, is_count

MINIMUM_REQUESTS = 5
"""Fewer requests than these say nothing about a share."""
_UNKNOWN_INTERVAL_S = 30.0
_MISSED_SCRAPES = 2.5
_GATEWAYS_LABELS = {"objective", "result", "reason"}
"""Labels that the gateway gives its counter; a scraper gives the others."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose telemetry it is."""

    namespace: str
    pods: frozenset[str]
    """Names of the gateway pods that live now. Series of others are those of the dead."""
    objectives: tuple[str, ...]
    pushed_s: float | None = None
    """When a candidate was pushed that is in force, in Unix time; None where there is none."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """What requests came to."""

    met: float
    ended: float
    goodput_rps: float


def judge_window(
    verdicts: Sequence[Series], quantiles: Sequence[Series], scope: Scope, from_s: float, now_s: float
) -> Telemetry:
    """Return the readings of the time from `from_s` to `now_s`, and those from the push of the scope's knobs on.

    `verdicts` are raw samples of the gateways' counter of verdicts; `quantiles` is what the quantiles' query gave.
    """
    alive = _counted_once([series for series in verdicts if series.labels.get("pod") in scope.pods and series.samples])
    lost, age_s = _health(alive, scope.pods, now_s)
    settled = _readings(alive, scope, from_s, lost, age_s)
    return Telemetry(
        **dict(settled),
        unsettled=None if scope.pushed_s is None else _readings(alive, scope, scope.pushed_s, lost, age_s),
        missed={} if is_lost(settled.attainment) else _missed(alive, scope, from_s),
        ttft_s=_quantiles("ttft", quantiles, scope, lost, age_s),
        itl_s=_quantiles("itl", quantiles, scope, lost, age_s),
    )


def _counted_once(series: Sequence[Series]) -> list[Series]:
    """Return each pod's series as one scraper has them, where several do: by a PodMonitor and by annotations, or as
    two Prometheus in one store.

    Of those that have not stopped it is the one with the most samples.
    """
    scrapers: defaultdict[str, defaultdict[frozenset[tuple[str, str]], list[Series]]]
    scrapers = defaultdict(lambda: defaultdict(list))
    for each in series:
        by = frozenset(label for label in each.labels.items() if label[0] not in _GATEWAYS_LABELS)
        scrapers[each.labels["pod"]][by].append(each)
    chosen: list[Series] = []
    for of_pod in scrapers.values():
        newest_s = max(map(_newest_s, of_pod.values()))
        going_on = [each for each in of_pod.values() if newest_s - _newest_s(each) <= _longest_gap_s(each)]
        chosen += max(going_on, key=lambda each: sum(len(one.samples) for one in each))
    return chosen


def _newest_s(series: Iterable[Series]) -> float:
    return max(each.samples[-1][0] for each in series)


def _longest_gap_s(series: Iterable[Series]) -> float:
    """Return how long ago a scrape may be before scrapes are missing."""
    gaps_s = [later - earlier for each in series for (earlier, _), (later, _) in pairwise(each.samples)]
    return _MISSED_SCRAPES * (median(gaps_s) if gaps_s else _UNKNOWN_INTERVAL_S)


def _readings(alive: Sequence[Series], scope: Scope, from_s: float, lost: Reading | None, age_s: float) -> Readings:
    counts = {name: lost or _count(name, alive, scope.pods, from_s) for name in scope.objectives}
    joint = _sum(counts.values())
    times = sorted({time for series in alive for time, _ in series.since(from_s)})
    first, last = (times[0], times[-1]) if len(times) > 1 else (None, None)
    return Readings(
        from_s=first,
        to_s=last,
        attainment=_attainment(joint, age_s),
        objectives={name: _attainment(found, age_s) for name, found in counts.items()},
        goodput_rps=_reading(joint, joint.goodput_rps, age_s) if isinstance(joint, _Counts) else joint,
    )


def _health(alive: Sequence[Series], pods: frozenset[str], now_s: float) -> tuple[Reading | None, float]:
    """Return why nothing can be read, if so, and the age of the pod that was scraped longest ago."""
    newest: dict[str, float] = {}
    for series in alive:
        pod = series.labels["pod"]
        newest[pod] = max(newest.get(pod, -math.inf), series.samples[-1][0])
    if not pods or pods - newest.keys():
        return Missing(), 0.0
    age_s = max(0.0, now_s - min(newest.values()))
    return (Stale(age_s=age_s) if age_s > _longest_gap_s(alive) else None), age_s


def _count(objective: str, alive: Sequence[Series], pods: frozenset[str], from_s: float) -> _Counts | Reading:
    mine = [series for series in alive if series.labels.get("objective") == objective]
    if pods - {series.labels["pod"] for series in mine}:
        return Missing()
    if not all(is_count(series.samples) for series in mine):
        return Error(message=f"a counter of the verdicts of objective {objective} is no number, or below 0")
    met = ended = goodput_rps = 0.0
    measured = False
    for series in mine:
        samples = series.since(from_s)
        if len(samples) < 2 or series.labels.get("result") not in {"met", "missed"}:
            continue
        measured = True
        grown = increase(samples)
        ended += grown
        if series.labels["result"] == "met":
            met += grown
            goodput_rps += grown / (samples[-1][0] - samples[0][0])
    return _Counts(met, ended, goodput_rps) if measured else TooFewSamples(samples=0, age_s=0.0)


def _missed(alive: Sequence[Series], scope: Scope, from_s: float) -> dict[str, float]:
    """Return how many requests missed for each reason."""
    grown: defaultdict[str, float] = defaultdict(float)
    for series in alive:
        if series.labels.get("result") == "missed" and series.labels.get("objective") in scope.objectives:
            grown[series.labels.get("reason", "")] += increase(series.since(from_s))
    return {reason: requests for reason, requests in grown.items() if reason and requests}


def _sum(found: Iterable[_Counts | Reading]) -> _Counts | Reading:
    found = list(found)
    counted = [each for each in found if isinstance(each, _Counts)]
    without = [each for each in found if not isinstance(each, _Counts)]
    if without:
        return next((each for each in without if is_lost(each)), without[0])
    return _Counts(
        sum(each.met for each in counted),
        sum(each.ended for each in counted),
        sum(each.goodput_rps for each in counted),
    )


def _attainment(found: _Counts | Reading, age_s: float) -> Reading:
    if not isinstance(found, _Counts):
        return found
    return _reading(found, found.met / max(1.0, found.ended), age_s)


def _reading(counts: _Counts, value: float, age_s: float) -> Reading:
    samples = round(counts.ended)
    if samples == 0:
        return Idle(age_s=age_s)
    if samples < MINIMUM_REQUESTS:
        return TooFewSamples(samples=samples, age_s=age_s)
    return Value(value=value, samples=samples, age_s=age_s)


def _quantiles(
    kind: str, answers: Sequence[Series], scope: Scope, lost: Reading | None, age_s: float
) -> dict[str, Reading]:
    found = {(series.labels.get("what"), series.labels.get("objective")): series.samples[-1][1] for series in answers}

    def reading(objective: str) -> Reading:
        value, count = found.get((kind, objective)), found.get((f"{kind}_count", objective))
        if lost is not None or value is None or count is None:
            return lost or Missing()
        if not (math.isfinite(value) and math.isfinite(count) and round(count) > 0):
            return Idle(age_s=age_s)
        return Value(value=value, samples=round(count), age_s=age_s)

    return {objective: reading(objective) for objective in scope.objectives}
