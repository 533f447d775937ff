"""Replays a trace against a server, once or at rising rates."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from leeway_core.errors import UserError

from leeway_load.exchange import Exchange
from leeway_load.ramp import RampReport, RampStep, climb, settled
from leeway_load.report import Report, report
from leeway_load.schedule import PlannedRequest, plan
from leeway_load.sender import Watch, replay
from leeway_load.target import Target
from leeway_load.trace import read_trace
from leeway_load.workload import Workload

Progress = Callable[[str, int], Watch]
"""Told the name and the number of requests of each replay that begins; the result is told how it goes."""


def unwatched(_name: str, _requests: int) -> Watch:
    """Show no progress."""
    return lambda _sent, _over: None


def run(trace: Path, target: Target, workload: Workload, progress: Progress = unwatched) -> Report:
    """Replay a trace and report. Blocks until the last request is over."""
    requests = plan(read_trace(trace), workload)
    return _report(send(requests, target, str(workload.seed), progress("replay", len(requests))), workload)


def run_ramp(
    trace: Path, target: Target, workload: Workload, factor: float, progress: Progress = unwatched
) -> RampReport:
    """Replay the trace's beginning from the workload's rate up, for its duration each, and report every step.

    A step that needs more requests than there are ends the ramp; the first one raises UserError.
    """
    first_rate, duration_s = workload.rate, workload.duration_s
    if first_rate is None or duration_s is None or not workload.classes:
        raise UserError("a ramp needs the first step's rate, the duration of a step and at least one objective")
    if not factor > 1:
        raise UserError(f"the ramp's factor must be above 1, not {factor}")
    whole = read_trace(trace)
    available = min(len(whole.records), workload.max_requests or len(whole.records))
    if first_rate * duration_s > available:
        raise UserError(
            f"a first step of {duration_s:g} s at {first_rate:g} requests/s needs more than the {available} requests "
            "that there are: lower the rate or the duration of a step, or take more of a longer trace"
        )

    def step(rate: float) -> RampStep | None:
        if rate * duration_s > available:
            return None
        requests = plan(whole, replace(workload, rate=rate))
        # A salt for each rate, else its prompts would hit the prefixes that the step before left in the server.
        watch = progress(f"{rate:.2f} requests/s", len(requests))
        exchanges = send(requests, target, f"{workload.seed}/{rate}", watch)
        return RampStep(rate, settled(exchanges), _report(exchanges, workload))

    return climb(first_rate, factor, step)


def send(requests: Sequence[PlannedRequest], target: Target, salt: str, watch: Watch) -> list[Exchange]:
    """Send planned requests at their times and wait until all are over. Prompts of equal salts are equal."""
    # Else a collection of garbage would walk the whole plan, a quarter of a second for 12,000 requests.
    gc.freeze()
    try:
        return asyncio.run(replay(requests, target, salt, watch))
    finally:
        gc.unfreeze()


def _report(exchanges: Sequence[Exchange], workload: Workload) -> Report:
    return report(exchanges, [one.objective for one in workload.classes])
