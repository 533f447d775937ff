"""A profile in words: what is seen of it, what was tried and chosen, and why. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from leeway_core.decision import Decided, Evidence
from leeway_core.knobs import Knobs
from leeway_core.reading import Error, Reading, TooFewSamples, Value
from leeway_core.snapshot import Snapshot

from leeway_operator.profile import Profile
from leeway_operator.status import Attainment, KnobsStatus


@dataclass(frozen=True, slots=True)
class Line:
    """One decision, or several in a row that held for the same reason."""

    when: str
    action: str
    why: str
    details: tuple[str, ...]


def present(profile: Profile) -> list[str]:
    """Return what the status tells of telemetry, objectives, knobs and what was done last, a line each.

    Of the latter the tuner does not know all: the operator goes back to the incumbent by itself.
    """
    status = profile.status
    lines = [
        f"telemetry: {condition.reason}: {condition.message}"
        for condition in status.conditions or ()
        if condition.type == "TelemetryHealthy"
    ]
    if status.objectives:
        lines.append("objectives: " + "; ".join(map(_fares, status.objectives)))
    if status.knobs is not None:
        lines.append("knobs: " + _knobs(status.knobs))
    lines += [
        f"done at {_moment(each.time)}: {each.action}: {each.message}" for each in reversed(status.decisions or ())
    ]
    return lines


def _fares(objective: Attainment) -> str:
    latencies = {"TTFT": objective.ttft_p95_ms, "ITL": objective.itl_p95_ms}
    parts = [] if objective.attainment_percent is None else [f"{objective.attainment_percent}% met"]
    if parts and objective.requests is not None:
        parts = [f"{parts[0]} of {objective.requests} requests"]
    parts += [f"{name} {value_ms} ms (p95)" for name, value_ms in latencies.items() if value_ms is not None]
    return f"{objective.name} {', '.join(parts) or 'has no reading'}"


def _knobs(knobs: KnobsStatus) -> str:
    values = knobs.desired.model_dump(exclude={"generation"})
    taken = "enforced" if knobs.enforced else "accepted"
    words = ", ".join(f"{name} {value}" for name, value in values.items())
    return f"{words}; {taken} by {knobs.acknowledged_pods} of {knobs.pods} pods"


def last_decision(profile: Profile, decisions: Sequence[Decided], now_s: float) -> str:
    """Return how old the newest of `decisions` is, which come newest first."""
    mode = profile.spec.tuning.mode
    if not decisions:
        return f"The tuner has decided nothing: mode is {mode}."
    asks = ", and in mode Observe nobody asks it" if mode == "Observe" else ""
    return f"The tuner last decided {_ago(now_s - decisions[0].snapshot.now_s)} ago{asks}."


def _ago(elapsed_s: float) -> str:
    for unit, unit_s in (("days", 86_400), ("h", 3600), ("min", 60)):
        if elapsed_s >= 2 * unit_s:
            return f"{elapsed_s / unit_s:.0f} {unit}"
    return f"{max(0.0, elapsed_s):.0f} s"


def explain(decisions: Sequence[Decided]) -> list[Line]:
    """Return the lines of `decisions`, which come newest first, in order of time."""
    return [_line(list(group)) for _, group in groupby(reversed(decisions), key=_sameness)]


def _sameness(item: Decided) -> tuple[str, str, int]:
    decision = item.decision
    return decision.action, decision.reason, 0 if decision.action == "Hold" else decision.sequence


def _line(group: Sequence[Decided]) -> Line:
    last = group[-1]
    times = f" x{len(group)}" if len(group) > 1 else ""
    return Line(
        when=_moment(datetime.fromtimestamp(last.snapshot.now_s, UTC)),
        action=f"{last.decision.action}{times}",
        why=f"{last.decision.reason}: {last.decision.message}",
        details=(_seen(last.snapshot), *_compared(last.decision.evidence), *_chosen(last)),
    )


def _moment(time: datetime) -> str:
    return time.strftime("%m-%d %H:%M:%S")


def _seen(snapshot: Snapshot) -> str:
    readings = ", ".join(f"{name} {_words(reading)}" for name, reading in snapshot.telemetry.objectives.items())
    disturbed = f"; {snapshot.disturbance}" if snapshot.disturbance else ""
    return f"seen: {readings} over {snapshot.telemetry.span_s:.0f} s{disturbed}"


def _compared(evidence: Evidence) -> Iterator[str]:
    for name in ("incumbent", "candidate"):
        share, requests = getattr(evidence, f"{name}_attainment"), getattr(evidence, f"{name}_requests")
        if share is not None:
            yield f"{name}: {share:.1%} met" + (f" of {requests} requests" if requests is not None else "")
    if evidence.difference is not None:
        low, high = evidence.difference_low, evidence.difference_high
        interval = f", between {low:+.3f} and {high:+.3f}" if low is not None and high is not None else ""
        yield f"difference: {evidence.difference:+.3f}{interval}, after {evidence.pairs or 0} pairs of windows"


def _chosen(item: Decided) -> Iterator[str]:
    before, after = item.snapshot.record.in_force, item.decision.advised or item.decision.record.in_force
    if changes := differences(before, after):
        yield f"{'advised' if item.decision.advised else 'turned'}: {changes}"


def differences(before: Knobs, after: Knobs) -> str:
    """Return what differs between two sets of knobs."""
    names = [name for name in Knobs.model_fields if name != "generation"]
    return ", ".join(
        f"{name} {getattr(before, name)} → {getattr(after, name)}"
        for name in names
        if getattr(before, name) != getattr(after, name)
    )


def _words(reading: Reading) -> str:
    """Return a share's reading as people say it."""
    match reading:
        case Value(value=value, samples=samples):
            return f"{value:.1%} met of {samples} requests"
        case TooFewSamples(samples=samples):
            return f"only {samples} requests yet"
        case Error(message=message):
            return f"not readable ({message})"
        case _:
            return reading.kind.lower()
