"""What a user reads of a profile: its conditions, its summary, and what is wrong with its pods."""

import asyncio
from typing import Any

import pytest
from leeway_core.decision import Decision
from leeway_core.knobs import Knobs
from leeway_core.policies import Policies, TokenCounters
from leeway_core.reading import Error, Idle, Missing, Outdated, Reading, Stale, TooFewSamples, Value
from leeway_core.record import Record
from leeway_core.snapshot import Telemetry
from leeway_operator.observation import Observation
from leeway_operator.pod_settings import pod_settings
from leeway_operator.pods import Pod
from leeway_operator.profile import Profile
from leeway_operator.report import report
from leeway_operator.seen import Seen
from leeway_operator.snapshot import snapshot_of
from leeway_operator.status import Condition, Status
from operator_doubles import World, pod_body

KNOBS = Knobs(
    generation=1,
    token_budget=64,
    prefill_heavy_chunk=64,
    decode_heavy_chunk=16,
    prefill_heavy_percent=50,
    running_sequences=8,
)
FAIR = Policies(ranking=TokenCounters())


def status_with(
    reading: Reading, *, mode: str = "Observe", url: str | None = "http://p:9090", reason: str = "", **latencies: Any
) -> Status:
    spec: dict[str, Any] = {
        "model": "m",
        "objectives": [{"name": "chat", "ttftMs": 500, "targetPercent": "90"}],
        "tuning": {"mode": mode},
        "telemetry": {"prometheus": {"url": url} if url else {}},
    }
    metadata = {"namespace": "team", "name": "chat", "uid": "u", "generation": 7}
    profile = Profile.read({"metadata": metadata, "spec": spec})
    observed = Observation(replicas=1, engines=(), gateways=(Pod.read(pod_body("chat-gateway-x", "gateway")),))
    telemetry = Telemetry(attainment=reading, objectives={"chat": reading}, goodput_rps=reading, **latencies)
    record = Record(incumbent=KNOBS, started_at_s=0)
    snapshot = snapshot_of(profile, sequence=1, record=record, observed=observed, telemetry=telemetry, now_s=100)
    held = Decision(sequence=1, action="Hold", record=record, reason=reason, message="Because.") if reason else None
    seen = Seen(observed=observed, record=record, snapshot=snapshot, decision=held)
    return report(profile, Status(), seen, 100)


def conditions(status: Status) -> dict[str, Condition]:
    return {condition.type: condition for condition in status.conditions or ()}


@pytest.mark.parametrize(
    ("reading", "health", "slo"),
    [
        (Value(value=0.95, samples=20, age_s=2), ("True", "ReadingsRecent"), ("True", "TargetsMet")),
        (Value(value=0.85, samples=20, age_s=2), ("True", "ReadingsRecent"), ("False", "ObjectiveMissed")),
        (Idle(age_s=2), ("True", "ReadingsRecent"), ("Unknown", "ReadingIdle")),
        (TooFewSamples(samples=1, age_s=2), ("True", "ReadingsRecent"), ("Unknown", "ReadingTooFewSamples")),
        (Missing(), ("False", "SeriesMissing"), ("Unknown", "ReadingMissing")),
        (Stale(age_s=90), ("False", "ReadingsStale"), ("Unknown", "ReadingStale")),
        (Outdated(pods=("chat-gateway-x",)), ("Unknown", "ObjectivesNotObeyedYet"), ("Unknown", "ReadingOutdated")),
        (Error(message="refused"), ("False", "PrometheusError"), ("Unknown", "ReadingError")),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_each_kind_of_reading_has_its_own_reason(
    reading: Reading, health: tuple[str, str], slo: tuple[str, str]
) -> None:
    found = conditions(status_with(reading))
    assert (found["TelemetryHealthy"].status, found["TelemetryHealthy"].reason) == health
    assert (found["SLOMet"].status, found["SLOMet"].reason) == slo


def test_all_six_conditions_are_there_with_the_generation_that_was_seen() -> None:
    status = status_with(Idle(age_s=1))
    assert list(conditions(status)) == ["Ready", "TelemetryHealthy", "SLOMet", "Tuning", "Degraded", "Paused"]
    assert {condition.observed_generation for condition in status.conditions or ()} == {7}
    assert status.observed_generation == 7


def test_without_prometheus_the_field_to_set_is_named() -> None:
    found = conditions(status_with(Missing(), url=None))["TelemetryHealthy"]
    assert (found.status, found.reason) == ("False", "NoPrometheus")
    assert "spec.telemetry.prometheus.url" in found.message


def test_attainment_and_budget_are_decimals_and_absent_without_a_reading() -> None:
    (measured,) = status_with(Value(value=0.95, samples=20, age_s=2)).objectives or ()
    assert (measured.attainment_percent, measured.budget_left_percent, measured.requests) == ("95.0", "50.0", 20)
    (unmeasured,) = status_with(Missing()).objectives or ()
    assert unmeasured.model_dump(exclude_none=True) == {"name": "chat"}


def test_latencies_are_whole_milliseconds_and_absent_without_a_reading() -> None:
    ttft, itl = Value(value=0.3124, samples=20, age_s=2), Value(value=0.0002, samples=300, age_s=2)
    (measured,) = status_with(Missing(), ttft_s={"chat": ttft}, itl_s={"chat": itl}).objectives or ()
    assert measured.model_dump(exclude_none=True) == {"name": "chat", "ttft_p95_ms": 312, "itl_p95_ms": 1}
    for reading in (Idle(age_s=2), Missing(), Stale(age_s=90), Error(message="refused")):
        (unmeasured,) = status_with(Missing(), ttft_s={"chat": reading}, itl_s={"chat": reading}).objectives or ()
        assert unmeasured.model_dump(exclude_none=True) == {"name": "chat"}


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("Measuring", "True"),
        ("KnobsPending", "True"),
        ("Idle", "False"),
        ("SearchRests", "False"),
        ("BudgetSpent", "False"),
        ("AwaitingApproval", "False"),
        ("PodsNotReady", "False"),
        ("TelemetryError", "False"),
    ],
)
def test_tuning_holds_only_while_the_tuner_looks_for_better_knobs(reason: str, status: str) -> None:
    tuning = conditions(status_with(Missing(), mode="Auto", reason=reason))["Tuning"]
    assert (tuning.status, tuning.reason, tuning.message) == (status, reason, "Because.")


def test_lost_telemetry_pauses_tuning() -> None:
    paused = conditions(status_with(Error(message="refused"), mode="Auto"))["Paused"]
    assert paused.status == "True"


def waiting(reason: str, message: str = "", last: dict[str, Any] | None = None) -> dict[str, Any]:
    container = {"restartCount": 3, "state": {"waiting": {"reason": reason, "message": message}}}
    return {"containerStatuses": [container | ({"lastState": {"terminated": last}} if last else {})]}


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (
            waiting("CrashLoopBackOff", "back-off", {"reason": "Error", "exitCode": 1, "message": "There is no model"}),
            "Crashing",
            "There is no model",
        ),
        (waiting("CrashLoopBackOff", "", {"reason": "Error", "exitCode": 3}), "Crashing", "exit code 3"),
        (waiting("CrashLoopBackOff", "", {"reason": "OOMKilled", "exitCode": 137}), "OutOfMemory", "resources.limits"),
        (waiting("ImagePullBackOff", "no such image"), "ImageUnavailable", "no such image"),
        (waiting("ErrImagePull"), "ImageUnavailable", "ErrImagePull"),
        (waiting("CreateContainerConfigError", "secret not found"), "ContainerRefused", "secret not found"),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk", "containerStatuses": []}, "Evicted", "disk"),
    ],
)
def test_a_pod_that_cannot_serve_says_why_in_the_summary(status: dict[str, Any], reason: str, words: str) -> None:
    world = World("Observe")
    asyncio.run(world.settle(2))
    world.cluster.pods[0] = pod_body("chat-engine-0", "engine", conditions=[], **status)
    del world.pods.knobs["chat-engine-0"]
    asyncio.run(world.visit())
    assert world.condition("Ready")["reason"] == reason
    assert words in world.status["summary"]
    assert "chat-engine-0" in world.status["summary"]
    assert world.condition("Degraded")["status"] == "True"


def test_a_long_traceback_keeps_its_error_in_the_summary() -> None:
    world = World("Observe")
    asyncio.run(world.settle(2))
    words = "Traceback (most recent call last): " + "File server.py, line 7; " * 30 + "ValueError: no tensor lm_head"
    status = waiting("CrashLoopBackOff", "", {"reason": "Error", "exitCode": 1, "message": words})
    world.cluster.pods[0] = pod_body("chat-engine-0", "engine", conditions=[], **status)
    asyncio.run(world.visit())
    summary = world.status["summary"]
    assert len(summary) == 256
    assert summary.startswith("Crashing: Pod chat-engine-0: ")
    assert summary.endswith("ValueError: no tensor lm_head")


def test_an_unschedulable_pod_says_what_the_scheduler_says() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu"}
    pod = Pod.read(pod_body("chat-engine-0", "engine", conditions=[unscheduled], containerStatuses=[], podIP=None))
    assert pod.trouble is not None
    assert (pod.trouble.reason, pod.trouble.message) == ("Unschedulable", "0/1 nodes: Insufficient cpu")


def refused(kind: str, name: str, message: str = "exceeded quota: small", minute: int = 0) -> dict[str, Any]:
    of = {"kind": kind, "name": name}
    return {"lastTimestamp": f"2026-01-01T00:{minute:02}:00Z", "message": message, "involvedObject": of}


def test_pods_that_cannot_even_be_made_are_explained_by_the_event() -> None:
    world = World("Observe")
    others = [refused("StatefulSet", "other-engine", "no", 2), refused("ReplicaSet", "chat-2-gateway-5f", "no", 3)]
    world.cluster.events = [refused("StatefulSet", "chat-engine"), *others]
    asyncio.run(world.visit())
    assert world.status["summary"] == "PodsRefused: exceeded quota: small"


@pytest.mark.parametrize(
    ("left", "by"),
    [
        (("chat-engine-0", "chat-engine-1"), ("ReplicaSet", "chat-gateway-5f7")),
        (("chat-engine-0", "chat-gateway-x"), ("StatefulSet", "chat-engine")),
    ],
    ids=["the gateway", "some engines"],
)
def test_a_quota_that_lets_only_some_pods_be_made_is_told(left: tuple[str, ...], by: tuple[str, str]) -> None:
    world = World("Observe")
    asyncio.run(world.settle(2))
    world.cluster.pods = [pod for pod in world.cluster.pods if pod["metadata"]["name"] in left]
    world.cluster.events = [refused(*by)]
    asyncio.run(world.visit())
    assert world.status["summary"] == "PodsRefused: exceeded quota: small"


def test_a_second_visit_changes_nothing_and_a_transition_keeps_its_time() -> None:
    world = World("Observe")
    asyncio.run(world.settle(3))
    before = world.status
    asyncio.run(world.settle(2))
    assert world.status == before


def test_the_first_pods_are_the_prefill_heavy_ones() -> None:
    settings = [pod_settings(KNOBS, FAIR, ordinal, 3) for ordinal in range(3)]
    assert [each.chunk_size for each in settings] == [64, 64, 16]
    assert [each.policies for each in settings] == [FAIR] * 3
    everywhere = KNOBS.model_copy(update={"prefill_heavy_percent": 0, "decode_heavy_chunk": 0, "token_budget": 4})
    only = pod_settings(everywhere, FAIR, 0, 1)
    assert (only.chunk_size, only.running_sequences) == (1, 4)
