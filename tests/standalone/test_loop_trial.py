"""A trial that loses something on its way ends at the incumbent, and serving goes on."""

from collections.abc import Iterator

import pytest
from clusters import Cluster
from profiles import START_S, FakePrometheus, Served, models_claim, profile, soon

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

    def wait_for_trial(self) -> None:
        """Wait until a candidate is in force on the pod, the incumbent being what a pod would boot with."""
        self.prometheus.answer("values")

        def trying() -> bool:
            record = self.record
            if not record["trying"]:
                return False
            accepted = self.knobs(self.engines[0])["accepted"]
            return bool(accepted["generation"] == record["candidate"]["generation"])

        soon(trying, 120, what=f"{self.name} is on trial: {self.status}")

    def wait_for_incumbent(self) -> None:
        """Wait until no trial is on record and the pod has the incumbent's knobs."""

        def back() -> bool:
            record = self.record
            accepted = self.knobs(self.engines[0])["accepted"]
            wanted = record["incumbent"]
            same = (accepted["generation"], accepted["tokenBudget"]) == (wanted["generation"], wanted["tokenBudget"])
            return record.get("candidate") is None and same

        soon(back, 60, what=f"{self.name} is at its incumbent: {self.status}")


@pytest.fixture(scope="module")
def tried(cluster: Cluster) -> Iterator[tuple[Tried, Tried]]:
    """Two profiles side by side."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    models_claim(cluster, NAMESPACE)
    both = Tried(cluster, "one"), Tried(cluster, "two")
    for each in both:
        each.prometheus.start()
        cluster.apply(profile(each.name, mode="Auto", prometheus=each.prometheus.url), namespace=NAMESPACE)
    for each in both:
        each.wait("Ready", "True", timeout_s=START_S)
    yield both
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_other_writers_and_lost_telemetry_void_their_own_trial_alone(tried: tuple[Tried, Tried]) -> None:
    edited, blind = tried
    for each in tried:
        each.wait_for_trial()
    before = {each.name: each.record["incumbent"]["tokenBudget"] for each in tried}
    pod = edited.engines[0]
    theirs = edited.knobs(pod)["accepted"]
    edited.push(pod, {**theirs, "generation": theirs["generation"] + 10, "tokenBudget": 32})
    edited.wait_for_incumbent()
    assert edited.record["incumbent"]["tokenBudget"] == before["one"]
    assert edited.record["incumbent"]["generation"] > theirs["generation"] + 10

    blind.wait_for_trial()
    blind.prometheus.answer("empty")
    blind.wait("TelemetryHealthy", "False", "SeriesMissing")
    blind.wait_for_incumbent()
    assert blind.record["incumbent"]["tokenBudget"] == before["two"]
    assert blind.condition("Paused")["reason"] == "TelemetryLost"


def test_each_way_to_lose_prometheus_has_its_reason_and_serving_goes_on(tried: tuple[Tried, Tried]) -> None:
    profile_, _ = tried
    for mode, reason in REASONS.items():
        profile_.prometheus.answer(mode)
        profile_.wait("TelemetryHealthy", "False", reason)
    profile_.prometheus.stop()
    profile_.wait("TelemetryHealthy", "False", "PrometheusError")
    profile_.wait_for_incumbent()
    assert profile_.complete()["usage"]["completion_tokens"] == 4
    profile_.prometheus.start()
    profile_.prometheus.answer("values")
    profile_.wait("TelemetryHealthy", "True")


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
    profile_.wait_for_trial()
    candidate = profile_.record["candidate"]["generation"]
    components = f"app.kubernetes.io/name=leeway,app.kubernetes.io/component in ({killed})"
    cluster.kubectl("delete", "pod", "-n", SYSTEM, "-l", components, "--grace-period=1")

    def ended() -> bool:
        record = profile_.record
        return bool(not record["trying"] and record["incumbent"]["generation"] > candidate)

    soon(ended, START_S)
    soon(lambda: profile_.condition("Tuning")["status"] == "True", START_S, what="both are back at work")
