"""Raises the rate step by step until the queue no longer settles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from leeway_load.exchange import Exchange
from leeway_load.report import Report, in_flight_at_sending

SETTLED_GROWTH = 1.25
SETTLED_SLACK = 2.0


@dataclass(frozen=True, slots=True)
class RampStep:
    """What one rate showed."""

    rate: float
    settled: bool
    report: Report


@dataclass(frozen=True, slots=True)
class RampReport:
    """All steps, the last of which ended the ramp."""

    void: bool
    """No step may be used."""
    highest_rate: float | None
    """The highest rate whose queue settled with every objective reached; None if there was none."""
    goodput_per_s: float | None
    """Requests per second that met all bounds at that rate."""
    stopped: str
    """Why no higher rate was tried."""
    steps: Sequence[RampStep]


def climb(rate: float, factor: float, send: Callable[[float], RampStep | None]) -> RampReport:
    """Try rate after rate, each `factor` times the one before; `send` gives None if the trace is too short."""
    steps: list[RampStep] = []
    while step := send(rate):
        steps.append(step)
        if step.report.void:
            return _ramp_report(steps, "the load generator was late, so the step is void")
        if not step.settled:
            return _ramp_report(steps, "the queue no longer settled")
        rate *= factor
    return _ramp_report(steps, "the trace has too few requests for the next rate")


def _ramp_report(steps: Sequence[RampStep], stopped: str) -> RampReport:
    good = [
        step
        for step in steps
        if step.settled and not step.report.void and all(one.reached for one in step.report.attainment)
    ]
    if not good:
        return RampReport(all(step.report.void for step in steps), None, None, stopped, steps)
    return RampReport(False, good[-1].rate, good[-1].report.met_per_s, stopped, steps)


def settled(exchanges: Sequence[Exchange]) -> bool:
    """Whether the queue stopped growing: requests in the last third of the sending met no more others in flight than
    those in the middle third, give or take what chance does."""
    counts = in_flight_at_sending(sorted(exchanges, key=lambda one: one.timeline.arrival_s))
    third = len(counts) // 3
    if third == 0:
        return True
    middle, last = fmean(counts[third:-third]), fmean(counts[-third:])
    return last <= SETTLED_GROWTH * middle + SETTLED_SLACK
