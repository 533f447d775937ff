"""A trial that loses something on its way ends at the incumbent, and serving goes on."""

import json
from collections.abc import Iterator, Sequence

import pytest
from clusters import Cluster
from leeway_core.decision import Decided
from leeway_core.knobs import Knobs
from leeway_core.pod_knobs import PodKnobs
from leeway_core.record import Record
from leeway_operator.pod_settings import pod_settings
from leeway_tuner.case import same
from profiles import START_S, FakePrometheus, Served, models_claim, profile, soon
from pydantic import TypeAdapter

NAMESPACE = "loop-trial"
SYSTEM = "leeway-system"
REASONS = {
    "nan": "PrometheusError",
    "stale": "ReadingsStale",
    "error": "PrometheusError",
    "empty": "SeriesMissing",
}


class Tried(Served):
    """A profile in mode Auto, with a Prometheus that a test controls."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, NAMESPACE, name)
        self.prometheus = FakePrometheus(cluster, NAMESPACE, f"prometheus-of-{name}", profile(name)["spec"])

    def wait_for_trial(self) -> Record:
        """Wait until a candidate is in force on the pod, the incumbent being what a pod would boot with.

        Returns what is on record then.
        """
        self.prometheus.answer("values")
        self.patch({"tuning": {"mode": "Auto"}})

        def trying() -> Record | None:
            record = Record.model_validate(self.record)
            if not record.trying:
                return None
            accepted = self.knobs(self.engines[0])["accepted"]
            return record if accepted["generation"] == record.in_force.generation else None

        record = soon(trying, 120, what=f"{self.name} is on trial: {self.status}")
        assert record is not None
        return record

    def wait_for_incumbent(self, pods: Sequence[str] = (), timeout_s: float = 60) -> Knobs:
        """Wait until no trial is on record, and these pods, else all, enforce the incumbent; returns it."""

        def back() -> Knobs | None:
            record = Record.model_validate(self.record)
            replicas = self.body["spec"]["replicas"]
            for ordinal, pod in enumerate(pods or self.engines):
                enforced = PodKnobs.model_validate_json(json.dumps(self.knobs(pod)["enforced"]))
                if enforced != pod_settings(record.incumbent, record.policies, ordinal, replicas):
                    return None
            return record.incumbent if record.candidate is None else None

        knobs = soon(back, timeout_s, what=f"{self.name} is at its incumbent: {self.status}")
        assert knobs is not None
        return knobs

    def why_ended(self, begun: Record) -> set[str]:
        """Return the tuner's reasons to end a trial, once it is over; none where it found it taken back already."""
        tuner = f"/api/v1/namespaces/{SYSTEM}/services/leeway-tuner:http/proxy"
        query = f"{tuner}/v1/profiles/{self.body['metadata']['uid']}/decisions?limit=200"

        def over() -> list[Decided]:
            answer = self.cluster.kubectl("get", "--raw", query, check=False)
            decided = [] if answer.returncode else TypeAdapter(list[Decided]).validate_json(answer.stdout)
            newest = {each.candidate for item in decided[:1] for each in (item.snapshot.record, item.decision.record)}
            return decided if begun.candidate not in newest else []

        decided = soon(over, START_S, what=f"the tuner has seen the end of {begun}")
        during = [each.decision for each in decided if each.snapshot.record.candidate == begun.candidate]
        return {decision.reason for decision in during if decision.action != "Hold"}


@pytest.fixture(scope="module")
def tried(cluster: Cluster) -> Iterator[tuple[Tried, Tried]]:
    """Two profiles side by side."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    models_claim(cluster, NAMESPACE)
    both = Tried(cluster, "one"), Tried(cluster, "two")
    for each in both:
        each.prometheus.start()
        cluster.apply(profile(each.name, prometheus=each.prometheus.url), namespace=NAMESPACE)
    for each in both:
        each.wait("Ready", "True", timeout_s=START_S)
    yield both
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(autouse=True)
def between_trials(tried: tuple[Tried, Tried]) -> Iterator[None]:
    """Have nothing tried between two tests, so that each sees a trial from its beginning."""
    yield
    for each in tried:
        each.patch({"tuning": {"mode": "Observe"}})


def test_other_writers_and_lost_telemetry_void_their_own_trial_alone(tried: tuple[Tried, Tried]) -> None:
    edited, blind = tried
    begun = {each.name: each.wait_for_trial() for each in tried}
    pod = edited.engines[0]
    theirs = edited.knobs(pod)["accepted"]
    edited.push(pod, {**theirs, "generation": theirs["generation"] + 10, "tokenBudget": 32})
    incumbent = edited.wait_for_incumbent()
    assert same(incumbent, begun["one"].incumbent)
    assert incumbent.generation > theirs["generation"] + 10

    blind.wait_for_trial()
    blind.prometheus.answer("empty")
    blind.wait("TelemetryHealthy", "False", "SeriesMissing")
    assert same(blind.wait_for_incumbent(), begun["two"].incumbent)
    assert blind.condition("Paused")["reason"] == "TelemetryLost"


def test_each_way_to_lose_prometheus_has_its_reason_and_serving_goes_on(tried: tuple[Tried, Tried]) -> None:
    blind, alone = tried
    blind.patch({"tuning": {"mode": "Auto"}})
    begun = alone.wait_for_trial()
    alone.prometheus.stop()
    begun_blind = blind.wait_for_trial()
    for mode, reason in REASONS.items():
        blind.prometheus.answer(mode)
        blind.wait("TelemetryHealthy", "False", reason)
        if mode == "nan":
            assert same(blind.wait_for_incumbent(), begun_blind.incumbent)
    alone.wait("TelemetryHealthy", "False", "PrometheusError")
    assert same(alone.wait_for_incumbent(), begun.incumbent)
    assert alone.complete()["usage"]["completion_tokens"] == 4
    alone.prometheus.start()
    blind.prometheus.answer("values")
    for each in tried:
        each.wait("TelemetryHealthy", "True")


def test_replicas_that_another_writer_changes_void_the_trial(tried: tuple[Tried, Tried]) -> None:
    profile_, _ = tried
    cluster, pods = profile_.cluster, profile_.engines
    begun = profile_.wait_for_trial()
    cluster.kubectl("scale", "sp/one", "-n", NAMESPACE, "--replicas=2")
    try:
        why = profile_.why_ended(begun)
        assert why
        assert why <= {"ReplicasChanging", "PodsNotReady"}, "whichever a visit meets first"
        assert same(profile_.wait_for_incumbent(pods), begun.incumbent)
    finally:
        cluster.kubectl("scale", "sp/one", "-n", NAMESPACE, "--replicas=1")
    soon(lambda: profile_.status["replicas"] == 1, 60, what="the other pod is gone")
    profile_.wait("Ready", "True", timeout_s=START_S)
    soon(lambda: profile_.condition("Paused")["status"] == "False", 60, what="nothing disturbs any more")


def test_leeway_explain_tells_what_was_tried_and_why(
    tried: tuple[Tried, Tried], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from leeway_cli.explain import explain

    monkeypatch.setenv("KUBECONFIG", tried[0].cluster.environment["KUBECONFIG"])
    explain("one", NAMESPACE, limit=100)
    told = capsys.readouterr().out
    assert "loop-trial/one: Serving on 1 of 1 pods" in told
    assert "Candidate: Trying" in told
    assert "turned: token_budget 256 →" in told


def test_without_the_tuner_the_incumbent_is_in_force_and_serving_goes_on(tried: tuple[Tried, Tried]) -> None:
    profile_, _ = tried
    cluster = profile_.cluster
    profile_.wait_for_trial()
    cluster.kubectl("scale", "deployment/leeway-tuner", "-n", SYSTEM, "--replicas=0")
    try:
        profile_.wait("Tuning", "False", "TunerUnavailable")
        profile_.wait_for_incumbent()
        assert profile_.condition("Ready")["status"] == "True"
        assert profile_.complete()["usage"]["completion_tokens"] == 4
    finally:
        cluster.kubectl("scale", "deployment/leeway-tuner", "-n", SYSTEM, "--replicas=1")
        cluster.wait_ready(SYSTEM, "deployment/leeway-tuner", START_S)


@pytest.mark.parametrize("killed", ["operator", "tuner", "operator,tuner"])
def test_killing_operator_and_tuner_in_mid_trial_ends_at_the_incumbent(tried: tuple[Tried, Tried], killed: str) -> None:
    profile_, _ = tried
    cluster = profile_.cluster
    begun = profile_.wait_for_trial()
    components = f"app.kubernetes.io/name=leeway,app.kubernetes.io/component in ({killed})"
    cluster.kubectl("delete", "pod", "-n", SYSTEM, "-l", components, "--grace-period=1")
    incumbent = profile_.wait_for_incumbent(timeout_s=START_S)
    assert same(incumbent, begun.incumbent)
    assert incumbent.generation > begun.in_force.generation
    if killed == "tuner":
        assert any("in force again: the tuner" in each["message"] for each in profile_.status["decisions"])
    soon(lambda: profile_.condition("Tuning")["status"] == "True", START_S, what="both are back at work")
    if "operator" in killed:  # a tuner that is back before it is asked goes on
        assert not profile_.why_ended(begun), "it did not come to its own end"
