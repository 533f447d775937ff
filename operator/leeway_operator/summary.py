"""State, attainment and mode in the few words that `kubectl get sp` has room for: pure."""

from collections.abc import Sequence

from leeway_core.reading import Value

from leeway_operator.findings import Finding
from leeway_operator.seen import Seen
from leeway_operator.spec import Spec

LONGEST_SUMMARY = 256
_FIRST_WORDS = 100
_LEFT_OUT = " … "


def summary(spec: Spec, seen: Seen, found: Sequence[Finding]) -> str:
    """Return the summary; what stands in the way of serving goes before all."""
    by_type = {finding.type: finding for finding in found}
    ready, telemetry = by_type["Ready"], by_type["TelemetryHealthy"]
    if ready.status != "True":
        return fitting(f"{ready.reason}: {ready.message}")
    parts = [f"Serving on {seen.observed.ready} of {spec.replicas} pods"]
    if telemetry.status == "False":
        parts.append(f"nothing measured ({telemetry.reason})")
    else:
        parts.append(", ".join(_words(objective.name, seen) for objective in spec.objectives))
    tuning = by_type["Tuning"]
    parts.append(f"mode {spec.tuning.mode}" + (", on trial" if tuning.reason == "TrialRunning" else ""))
    degraded = by_type["Degraded"]
    if degraded.status == "True":
        parts.append(f"degraded ({degraded.reason})")
    return fitting("; ".join(parts))


def fitting(text: str) -> str:
    """Return a summary that is not too long: what it is about comes first, and a traceback has the error last."""
    if len(text) <= LONGEST_SUMMARY:
        return text
    last = LONGEST_SUMMARY - _FIRST_WORDS - len(_LEFT_OUT)
    return text[:_FIRST_WORDS] + _LEFT_OUT + text[-last:]


def _words(name: str, seen: Seen) -> str:
    reading = seen.snapshot.telemetry.objectives.get(name)
    if isinstance(reading, Value):
        return f"{name} {reading.value:.1%} met"
    kind = getattr(reading, "kind", "Missing")
    return f"{name} {'idle' if kind == 'Idle' else 'not measured yet'}"
