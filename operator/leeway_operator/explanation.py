"""A profile's decisions in words: what was seen, tried, chosen, and why. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from leeway_core.decision import Decided, Evidence
from leeway_core.knobs import Knobs
from leeway_core.reading import Error, Reading, TooFewSamples, Value
from leeway_core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Line:
    """One decision, or several in a row that held for the same reason."""

    when: str
    action: str
    why: str
    details: tuple[str, ...]


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
        when=datetime.fromtimestamp(last.snapshot.now_s, UTC).strftime("%H:%M:%S"),
        action=f"{last.decision.action}{times}",
        why=f"{last.decision.reason}: {last.decision.message}",
        details=(_seen(last.snapshot), *_compared(last.decision.evidence), *_chosen(last)),
    )


def _seen(snapshot: Snapshot) -> str:
    readings = ", ".join(f"{name} {words(reading)}" for name, reading in snapshot.telemetry.objectives.items())
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


def words(reading: Reading) -> str:
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
