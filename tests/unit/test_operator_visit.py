"""From its first visit on, a profile says in six conditions and a summary how it stands."""

from datetime import UTC, datetime, timedelta
from typing import Any

from leeway_operator.spec import Spec
from leeway_operator.status import Condition, Status
from leeway_operator.visit import visit

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def spec(**fields: Any) -> Spec:
    return Spec.model_validate({"model": "m", "objectives": [{"name": "chat", "ttftMs": 500}], **fields})


def by_type(status: Status) -> dict[str, Condition]:
    assert status.conditions is not None
    return {condition.type: condition for condition in status.conditions}


def test_all_six_conditions_are_there_with_reason_and_generation() -> None:
    status = visit("chat", 7, spec(), [], NOW)
    conditions = by_type(status)
    assert list(conditions) == ["Ready", "TelemetryHealthy", "SLOMet", "Tuning", "Degraded", "Paused"]
    assert {condition.observed_generation for condition in conditions.values()} == {7}
    assert all(condition.reason and condition.message for condition in conditions.values())
    assert status.observed_generation == 7


def test_what_is_not_measured_is_unknown_and_not_claimed() -> None:
    status = visit("chat", 1, spec(), [], NOW)
    assert by_type(status)["Ready"].status == "False"
    assert by_type(status)["SLOMet"].status == "Unknown"
    assert status.objectives is None
    assert status.knobs is not None
    assert status.knobs.enforced is None


def test_a_missing_prometheus_is_named_with_the_field_to_set() -> None:
    missing = by_type(visit("chat", 1, spec(), [], NOW))["TelemetryHealthy"]
    assert (missing.status, missing.reason) == ("False", "NoPrometheus")
    assert "spec.telemetry.prometheus.url" in missing.message
    named = spec(telemetry={"prometheus": {"url": "http://prometheus:9090"}})
    assert by_type(visit("chat", 1, named, [], NOW))["TelemetryHealthy"].status == "Unknown"


def test_the_summary_names_the_mode_and_the_selector_the_pods() -> None:
    status = visit("chat", 1, spec(tuning={"mode": "Auto"}), [], NOW)
    assert status.summary == "Accepted, no engine pods yet; mode Auto"
    assert status.selector == "leeway.dev/profile=chat,leeway.dev/component=engine"


def test_a_second_visit_changes_nothing() -> None:
    first = visit("chat", 1, spec(), [], NOW)
    assert visit("chat", 1, spec(), first.conditions or [], LATER) == first


def test_only_a_change_of_status_moves_the_time_of_transition() -> None:
    first = visit("chat", 1, spec(), [], NOW)
    named = spec(telemetry={"prometheus": {"url": "http://prometheus:9090"}})
    second = by_type(visit("chat", 2, named, first.conditions or [], LATER))
    assert second["TelemetryHealthy"].last_transition_time == LATER
    assert second["Ready"].last_transition_time == NOW
    assert second["Ready"].observed_generation == 2
