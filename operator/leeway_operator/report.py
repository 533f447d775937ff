"""What the status of a profile should be: a pure function of what a visit saw, of the last status and of the time."""

from datetime import UTC, datetime
from typing import get_args

from leeway_core.objective import Objective
from leeway_core.reading import Reading, Value
from leeway_core.snapshot import Telemetry

from leeway_operator.findings import Finding, findings
from leeway_operator.profile import Profile
from leeway_operator.seen import Seen
from leeway_operator.status import Attainment, Condition, ConditionType, DecisionRecord, KnobsStatus, Status
from leeway_operator.summary import fitting, summary

KEPT_DECISIONS = 5
LONGEST_MESSAGE = 1024


def report(profile: Profile, last: Status, seen: Seen, now_s: float) -> Status:
    """Return the status; `last` is the one before."""
    now = datetime.fromtimestamp(int(now_s), UTC)
    found = findings(profile.spec, seen)
    engines = seen.observed.engines
    return Status(
        observed_generation=profile.generation,
        summary=summary(profile.spec, seen, found),
        conditions=[_condition(finding, profile.generation, last, now) for finding in found],
        replicas=len(engines),
        selector=profile.names.selector("engine"),
        objectives=[_attainment(objective, seen.snapshot.telemetry) for objective in profile.spec.objectives],
        tuner=seen.tuner or None,
        knobs=_knobs(seen),
        decisions=_decisions(last.decisions or [], seen, now) or None,
    )


def unvisited(profile: Profile, last: Status, reason: str, why: str, now_s: float) -> Status:
    """Return the status of a profile whose visits fail: what was known of it last, and why no more is."""
    now = datetime.fromtimestamp(int(now_s), UTC)
    known = {condition.type: condition for condition in last.conditions or ()}
    unknown = [Finding(kind, "Unknown", reason, why) for kind in get_args(ConditionType) if kind not in known]
    broken = Finding("Degraded", "True", reason, why)
    for finding in (*unknown, broken):
        known[finding.type] = _condition(finding, profile.generation, last, now)
    conditions = [known[kind] for kind in get_args(ConditionType)]
    found = {
        "observed_generation": profile.generation,
        "summary": fitting(f"{reason}: {why}"),
        "conditions": conditions,
    }
    return last.model_copy(update=found)


def _condition(finding: Finding, generation: int, last: Status, now: datetime) -> Condition:
    before = next((item for item in last.conditions or () if item.type == finding.type), None)
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=finding.message[:LONGEST_MESSAGE],
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before and before.status == finding.status else now,
    )


def _attainment(objective: Objective, telemetry: Telemetry) -> Attainment:
    measured = Attainment(
        name=objective.name,
        ttft_p95_ms=_milliseconds(telemetry.ttft_s.get(objective.name)),
        itl_p95_ms=_milliseconds(telemetry.itl_s.get(objective.name)),
    )
    reading = telemetry.objectives.get(objective.name)
    if not isinstance(reading, Value):
        return measured
    allowed, missed = 1 - float(objective.target_percent) / 100, 1 - reading.value
    left = 1 - missed / allowed if allowed > 0 else float(missed == 0)
    shares = {
        "attainment_percent": f"{reading.value:.1%}"[:-1],
        "budget_left_percent": f"{max(left, 0):.1%}"[:-1],
        "requests": reading.samples,
    }
    return measured.model_copy(update=shares)


def _milliseconds(reading: Reading | None) -> int | None:
    """Return whole milliseconds, 1 where it was less: 0 would read as nothing measured."""
    return max(1, round(reading.value * 1e3)) if isinstance(reading, Value) else None


def _knobs(seen: Seen) -> KnobsStatus:
    engines, desired = seen.observed.engines, seen.record.in_force
    wanted = [(item.knobs, seen.observed.wanted(item, seen.record)) for item in engines]
    accepted = sum(knobs is not None and knobs.accepted == knobs_wanted for knobs, knobs_wanted in wanted)
    enforced = all(knobs is not None and knobs.enforced == knobs_wanted for knobs, knobs_wanted in wanted)
    return KnobsStatus(
        desired=desired,
        enforced=desired if engines and enforced else None,
        pods=len(engines),
        acknowledged_pods=accepted,
    )


def _why_back(seen: Seen) -> str:
    if seen.failure or seen.push_refusal:
        return seen.failure or seen.push_refusal
    if seen.snapshot.mode == "Observe" and seen.snapshot.record.candidate is not None:
        return "spec.tuning.mode is Observe, so the trial is over"
    if seen.snapshot.disturbance == "ReplicasChanging":
        return "with more or fewer pods, others of them are P-heavy"
    return "pods had other knobs than those on record"


def _decisions(last: list[DecisionRecord], seen: Seen, now: datetime) -> list[DecisionRecord]:
    """Return the last decisions that changed or advised something, newest first."""
    decision, action = seen.decision, seen.action
    if action is None or action == "Hold":
        return last
    if decision is not None and decision.action == action:
        message = decision.message
    else:
        message = f"The incumbent is in force again: {_why_back(seen)}"
    sequence = decision.sequence if decision else seen.snapshot.sequence
    taken = DecisionRecord(sequence=sequence, time=now, action=action, message=message[:LONGEST_MESSAGE])
    return [taken, *last][:KEPT_DECISIONS]
