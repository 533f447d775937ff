"""What a replay showed: latencies, attainment, breaches against concurrency, errors, and whether to trust it. Pure."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leeway_core.objective import Objective
from leeway_core.verdict import Verdict, judge

from leeway_load.exchange import Exchange
from leeway_load.summary import Summary, summarize

MOST_SEND_LAG_MS = 10.0
"""Send lag (p99) from which on a report is void: the load was then not the one that was planned."""

ENDINGS = ("finished", "cancelled", "timed_out", "rejected", "failed", "lost")
MOST_ERRORS = 10


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of a group of requests, in seconds. TTFT and ITL count whatever was received, TPOT and end-to-end
    time only requests that finished."""

    requests: int
    ttft_s: Summary | None
    itl_s: Summary | None
    tpot_s: Summary | None
    e2e_s: Summary | None


@dataclass(frozen=True, slots=True)
class Attainment:
    """How the requests of one objective did."""

    objective: str
    target_percent: str
    met: int
    missed: Mapping[str, int]
    """Misses by reason."""
    cancelled: int
    """Left out: their clients cancelled before a bound was broken."""
    attained_percent: float | None
    """None where no request counts."""
    reached: bool
    """Whether enough requests met the objective; without any, it wasn't shown."""


@dataclass(frozen=True, slots=True)
class Breaches:
    """Misses among the requests that were sent while so many were in flight, themselves included."""

    least_in_flight: int
    most_in_flight: int
    requests: int
    missed: int


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one replay."""

    void: bool
    """The load generator was late: nothing below may be used."""
    send_lag_ms: Summary | None
    requests: int
    duration_s: float
    """From the first request's sending to the last one's end."""
    sent_per_s: float | None
    """Mean rate of sending; None for fewer than two moments."""
    met_per_s: float | None
    """Goodput: requests that met all bounds, per second; None without objectives."""
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_s: float
    endings: Mapping[str, int]
    errors: Mapping[str, int]
    """The most frequent messages."""
    latencies: Mapping[str, Latencies]
    """By group: all, each cohort, and each class and tenant if there are several."""
    attainment: Sequence[Attainment]
    breaches: Sequence[Breaches]


def report(exchanges: Sequence[Exchange], objectives: Sequence[Objective]) -> Report:
    """Judge and sum up the exchanges of a replay, of which there is at least one."""
    by_name = {objective.name: objective for objective in objectives}
    verdicts = [judge(by_name[one.request.class_name], one.timeline) for one in exchanges] if by_name else []
    sent_s = sorted(one.timeline.arrival_s for one in exchanges)
    duration_s = max(one.timeline.end_s for one in exchanges) - sent_s[0]
    lag_ms = summarize(one.lag_s * 1e3 for one in exchanges)
    output_tokens = sum(one.output_tokens for one in exchanges)
    endings = Counter(one.ending for one in exchanges)
    met = sum(verdict.result == "met" for verdict in verdicts)
    return Report(
        void=lag_ms is None or lag_ms.p99 > MOST_SEND_LAG_MS,
        send_lag_ms=lag_ms,
        requests=len(exchanges),
        duration_s=duration_s,
        sent_per_s=(len(sent_s) - 1) / (sent_s[-1] - sent_s[0]) if sent_s[-1] > sent_s[0] else None,
        met_per_s=met / duration_s if verdicts else None,
        prompt_tokens=sum(one.request.prompt_tokens for one in exchanges),
        output_tokens=output_tokens,
        output_tokens_per_s=output_tokens / duration_s,
        endings={ending: endings[ending] for ending in ENDINGS},
        errors=dict(Counter(one.error for one in exchanges if one.error).most_common(MOST_ERRORS)),
        latencies={name: _latencies(group) for name, group in _groups(exchanges).items()},
        attainment=[_attainment(objective, exchanges, verdicts) for objective in objectives],
        breaches=_breaches(exchanges, verdicts),
    )


def _groups(exchanges: Sequence[Exchange]) -> dict[str, list[Exchange]]:
    kinds: tuple[dict[str, list[Exchange]], ...] = (defaultdict(list), defaultdict(list), defaultdict(list))
    for one in exchanges:
        names = (one.request.cohort, f"class {one.request.class_name}", one.request.tenant)
        for groups, name in zip(kinds, names, strict=True):
            groups[name].append(one)
    groups = {"all": list(exchanges)}
    for kind in kinds:
        if len(kind) > 1:
            groups |= dict(sorted(kind.items()))
    return groups


def _latencies(exchanges: Sequence[Exchange]) -> Latencies:
    timelines = [one.timeline for one in exchanges]
    finished = [timeline for timeline in timelines if timeline.outcome == "finished"]
    return Latencies(
        requests=len(exchanges),
        ttft_s=summarize(timeline.output_s[0] - timeline.arrival_s for timeline in timelines if timeline.output_s),
        itl_s=summarize(gap_s for timeline in timelines for gap_s in timeline.gaps_s),
        tpot_s=summarize(timeline.tpot_s for timeline in finished if len(timeline.output_s) > 1),
        e2e_s=summarize(timeline.end_s - timeline.arrival_s for timeline in finished),
    )


def _attainment(objective: Objective, exchanges: Sequence[Exchange], verdicts: Sequence[Verdict]) -> Attainment:
    own = [
        verdict for one, verdict in zip(exchanges, verdicts, strict=True) if one.request.class_name == objective.name
    ]
    results = Counter(verdict.result for verdict in own)
    counted = results["met"] + results["missed"]
    attained_percent = 100 * results["met"] / counted if counted else None
    return Attainment(
        objective=objective.name,
        target_percent=objective.target_percent,
        met=results["met"],
        missed=dict(Counter(verdict.reason for verdict in own if verdict.result == "missed")),
        cancelled=results["cancelled"],
        attained_percent=attained_percent,
        reached=attained_percent is not None and attained_percent >= float(objective.target_percent),
    )


def _breaches(exchanges: Sequence[Exchange], verdicts: Sequence[Verdict]) -> list[Breaches]:
    """Group by powers of two: 1, 2-3, 4-7 in flight and so on."""
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    in_flight = in_flight_at_sending(exchanges)
    for number, verdict in zip(in_flight, verdicts, strict=False):
        counts[number.bit_length()][verdict.result] += 1
    return [
        Breaches(2 ** (bits - 1), 2**bits - 1, results["met"] + results["missed"], results["missed"])
        for bits, results in sorted(counts.items())
    ]


def in_flight_at_sending(exchanges: Sequence[Exchange]) -> list[int]:
    """How many requests were in flight when each was sent, itself included."""
    starts_s = sorted(one.timeline.arrival_s for one in exchanges)
    ends_s = sorted(one.timeline.end_s for one in exchanges)
    # An exchange that was over at once still counts itself.
    return [
        max(1, bisect_right(starts_s, one.timeline.arrival_s) - bisect_right(ends_s, one.timeline.arrival_s))
        for one in exchanges
    ]
