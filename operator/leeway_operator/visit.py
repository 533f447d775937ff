"""What the status of a profile should be: a pure function of the profile, its last conditions and the time."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from leeway_operator.knobs import starting_knobs
from leeway_operator.spec import Spec
from leeway_operator.status import Condition, ConditionType, KnobsStatus, Status

Finding = tuple[ConditionType, Literal["True", "False", "Unknown"], str, str]


def visit(name: str, generation: int, spec: Spec, previous: Sequence[Condition], now: datetime) -> Status:
    """Return the status of the profile `name` at `generation`; `previous` are the conditions of its last status."""
    since = {condition.type: condition for condition in previous}
    conditions = []
    for kind, status, reason, message in _findings(spec):
        last = since.get(kind)
        conditions.append(
            Condition(
                type=kind,
                status=status,
                reason=reason,
                message=message,
                observed_generation=generation,
                last_transition_time=last.last_transition_time if last and last.status == status else now,
            )
        )
    return Status(
        observed_generation=generation,
        summary=f"Accepted, no engine pods yet; mode {spec.tuning.mode}",
        conditions=conditions,
        replicas=0,
        selector=f"leeway.dev/profile={name},leeway.dev/component=engine",
        knobs=KnobsStatus(desired=starting_knobs(spec)),
    )


def _findings(spec: Spec) -> list[Finding]:
    pending = "EnginePending"
    return [
        ("Ready", "False", pending, "The profile is valid, but this version of Leeway does not start engine pods yet"),
        _telemetry(spec),
        ("SLOMet", "Unknown", pending, "No request has been served yet"),
        _tuning(spec),
        ("Degraded", "False", "NothingBroken", "Nothing that should run is broken"),
        ("Paused", "False", "NotPaused", "Nothing holds tuning back"),
    ]


def _telemetry(spec: Spec) -> Finding:
    if spec.telemetry.prometheus.url is None:
        message = "Leeway measures nothing without Prometheus: set spec.telemetry.prometheus.url"
        return "TelemetryHealthy", "False", "NoPrometheus", message
    return "TelemetryHealthy", "Unknown", "EnginePending", "There is nothing to read before engine pods run"


def _tuning(spec: Spec) -> Finding:
    if spec.tuning.mode == "Observe":
        return "Tuning", "False", "ModeObserve", "Mode Observe turns no knobs: set spec.tuning.mode to Auto to tune"
    return "Tuning", "False", "EnginePending", "There is nothing to tune before engine pods run"
