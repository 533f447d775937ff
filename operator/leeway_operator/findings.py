"""The six conditions of a profile, from what a visit saw: pure."""

from dataclasses import dataclass
from typing import Literal

from leeway_core.reading import Error, Missing, Outdated, Reading, Stale, Value, is_lost

from leeway_operator.pods import Pod
from leeway_operator.seen import Seen
from leeway_operator.spec import Spec
from leeway_operator.status import ConditionType

DISTURBANCES = {
    "ReplicasChanging": "Engine pods come or go, so nothing is tried until they have settled",
    "PodsNotReady": "An engine pod is not ready, so nothing is tried until all are",
    "KnobsPending": "A pod has not yet enforced the knobs in force",
    "KnobsEdited": "Somebody else has turned knobs; they are turned back",
}

RESTING = {
    *("Idle", "SearchOver", "SearchRests", "BudgetSpent", "AwaitingApproval"),
    *("TelemetryError", "TelemetryMissing", "TelemetryOutdated", "TelemetryStale"),
    *("KnobsEdited", "PodsNotReady", "ReplicasChanging"),
}
"""Reasons that the tuner gives while it neither measures nor tries."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its history."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def findings(spec: Spec, seen: Seen) -> list[Finding]:
    """Return all six."""
    return [
        _ready(spec, seen),
        _telemetry(spec, seen),
        _slo(spec, seen),
        _tuning(spec, seen),
        _degraded(seen),
        _paused(seen),
    ]


def _ready(spec: Spec, seen: Seen) -> Finding:
    observed = seen.observed
    if spec.replicas == 0:
        return Finding("Ready", "False", "ScaledToZero", "spec.replicas is 0, so nothing serves")
    enough = observed.ready >= spec.replicas - spec.replicas // 4
    count = f"{observed.ready} of {spec.replicas} engine pods are ready"
    if observed.strangers:
        count += f", not counting pods that have only their labels: {', '.join(observed.strangers)}"
    if enough and any(pod.ready for pod in observed.gateways):
        return Finding("Ready", "True", "Serving", count)
    if hindrance := _hindrance(seen):
        return Finding("Ready", "False", *hindrance)
    if enough:
        return Finding("Ready", "False", "GatewayStarting", "The gateway is not ready yet")
    return Finding("Ready", "False", "Starting", count)


def _hindrance(seen: Seen) -> tuple[str, str] | None:
    """Return the reason and the message of what is broken, the most basic first."""
    if seen.child_refusals:
        return "ChildRefused", "The API server refuses " + "; ".join(seen.child_refusals)
    if seen.no_pods_because:
        return "PodsRefused", seen.no_pods_because
    pods: list[Pod] = [*(item.pod for item in seen.observed.engines), *seen.observed.gateways]
    for pod in pods:
        if pod.trouble and not pod.leaving:
            return pod.trouble.reason, f"Pod {pod.name}: {pod.trouble.message}"
    return None


def _telemetry(spec: Spec, seen: Seen) -> Finding:
    reading = seen.snapshot.telemetry.attainment
    if spec.telemetry.prometheus.url is None:
        message = "Leeway measures nothing without Prometheus: set spec.telemetry.prometheus.url"
        return Finding("TelemetryHealthy", "False", "NoPrometheus", message)
    if not (isinstance(reading, Error) or any(pod.ready for pod in seen.observed.gateways)):
        message = "There is nothing to read before a gateway runs"
        return Finding("TelemetryHealthy", "Unknown", "GatewayStarting", message)
    return _health(reading)


def _health(reading: Reading) -> Finding:
    match reading:
        case Error(message=message):
            return Finding("TelemetryHealthy", "False", "PrometheusError", message)
        case Missing():
            message = "Prometheus has no series of the gateway: let it scrape pods annotated prometheus.io/scrape"
            return Finding("TelemetryHealthy", "False", "SeriesMissing", message)
        case Stale(age_s=age_s):
            message = f"Prometheus last scraped a gateway {age_s:.0f} s ago"
            return Finding("TelemetryHealthy", "False", "ReadingsStale", message)
        case Outdated():
            return Finding("TelemetryHealthy", "Unknown", "ObjectivesNotObeyedYet", _not_obeyed(reading))
        case _:
            return Finding("TelemetryHealthy", "True", "ReadingsRecent", "Readings are complete and recent")


def _not_obeyed(reading: Outdated) -> str:
    pods = ", ".join(reading.pods)
    return f"{pods} judge by the former objectives until the kubelet hands on the changed ConfigMap, in about a minute"


def _slo(spec: Spec, seen: Seen) -> Finding:
    readings = seen.snapshot.telemetry.objectives
    missed, unknown = [], []
    for objective in spec.objectives:
        reading = readings.get(objective.name)
        if not isinstance(reading, Value):
            unknown.append(objective.name)
        elif reading.value * 100 < float(objective.target_percent):
            missed.append(f"{objective.name} at {reading.value:.1%} of {objective.target_percent}%")
    if missed:
        return Finding("SLOMet", "False", "ObjectiveMissed", "Below target: " + ", ".join(missed))
    if unknown:
        kind = getattr(readings.get(unknown[0]), "kind", "Missing")
        return Finding("SLOMet", "Unknown", f"Reading{kind}", "No reading of " + ", ".join(unknown))
    return Finding("SLOMet", "True", "TargetsMet", "Every objective meets its target")


def _tuning(spec: Spec, seen: Seen) -> Finding:
    if spec.tuning.mode == "Observe":
        message = "Mode Observe turns no knobs: set spec.tuning.mode to Auto to tune"
        return Finding("Tuning", "False", "ModeObserve", message)
    if seen.decision is None:
        return Finding("Tuning", "False", "TunerUnavailable", seen.failure)
    if seen.record.candidate is not None:
        return Finding("Tuning", "True", "TrialRunning", seen.decision.message)
    looks = seen.decision.reason not in RESTING
    return Finding("Tuning", "True" if looks else "False", seen.decision.reason, seen.decision.message)


def _degraded(seen: Seen) -> Finding:
    if hindrance := _hindrance(seen):
        return Finding("Degraded", "True", *hindrance)
    if seen.push_refusal:
        return Finding("Degraded", "True", "KnobsRefused", f"Not every pod takes the knobs: {seen.push_refusal}")
    if seen.failure:
        return Finding("Degraded", "True", "TunerUnavailable", seen.failure)
    return Finding("Degraded", "False", "NothingBroken", "Nothing that should run is broken")


def _paused(seen: Seen) -> Finding:
    disturbance = seen.snapshot.disturbance
    if seen.snapshot.mode == "Observe":
        return Finding("Paused", "False", "ModeObserve", "Mode Observe has nothing to hold back")
    if disturbance is not None:
        return Finding("Paused", "True", disturbance, DISTURBANCES[disturbance])
    reading = seen.snapshot.telemetry.attainment
    if isinstance(reading, Outdated):
        return Finding("Paused", "True", "ObjectivesNotObeyedYet", _not_obeyed(reading))
    if is_lost(reading):
        return Finding("Paused", "True", "TelemetryLost", "Without readings the incumbent stays in force")
    if seen.decision is None:
        return Finding("Paused", "True", "TunerUnavailable", "Without the tuner the incumbent stays in force")
    return Finding("Paused", "False", "NotPaused", "Nothing holds tuning back")
