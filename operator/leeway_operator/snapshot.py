"""Builds the Snapshot that a decision rests on: pure."""

from collections.abc import Iterable

from leeway_core.reading import Missing, Reading
from leeway_core.record import Record
from leeway_core.snapshot import Snapshot, Telemetry

from leeway_operator.knobs import knob_ranges, starting_knobs
from leeway_operator.observation import Observation
from leeway_operator.profile import Profile


def no_telemetry(objectives: Iterable[str]) -> Telemetry:
    """Return the readings of a profile without Prometheus."""
    missing: Reading = Missing()
    return Telemetry(attainment=missing, objectives=dict.fromkeys(objectives, missing), goodput_rps=missing)


def snapshot_of(
    profile: Profile, *, sequence: int, record: Record, observed: Observation, telemetry: Telemetry, now_s: float
) -> Snapshot:
    """Return the profile at this moment."""
    spec = profile.spec
    return Snapshot(
        uid=profile.uid,
        namespace=profile.namespace,
        name=profile.name,
        generation=profile.generation,
        sequence=sequence,
        now_s=now_s,
        mode=spec.tuning.mode,
        approved_decision=spec.tuning.approved_decision,
        objectives=tuple(spec.objectives),
        ranges=knob_ranges(spec),
        window_s=spec.tuning.window_seconds,
        exploration_budget_percent=spec.tuning.exploration_budget_percent,
        starting=starting_knobs(spec),
        record=record,
        pods=tuple(item.seen() for item in observed.engines),
        disturbance=observed.disturbance(record),
        telemetry=telemetry,
    )
