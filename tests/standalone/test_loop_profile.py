"""A profile's life: from nothing to answers, through changes, faults and interference, to nothing."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, eventually
from profiles import BUDGET_BOUNDS, START_S, Served, models_claim, profile, soon

NAMESPACE = "loop-profile"
SYSTEM = "leeway-system"
UNWATCHED = (
    "secret/chat-knob-token",
    "serviceaccount/chat-engine",
    "role.rbac.authorization.k8s.io/chat-gateway",
    "rolebinding.rbac.authorization.k8s.io/chat-gateway",
)
KINDS = "pods,services,configmaps,secrets,serviceaccounts,statefulsets,deployments,roles,rolebindings"


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Iterator[Served]:
    """Profile `chat` of two pods beside profile `code` of one."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    models_claim(cluster, NAMESPACE)
    cluster.apply(profile("chat", replicas=2), profile("code"), namespace=NAMESPACE)
    yield Served(cluster, NAMESPACE, "chat")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def code(served: Served) -> Served:
    return Served(served.cluster, NAMESPACE, "code")


def process_of(cluster: Cluster, pod: str, program: str) -> int:
    """Return the process of a pod that runs a program."""
    # A list of children is not whole while processes come and go.
    return eventually(lambda: find_process(cluster, pod, program) or 0, 10, what=f"{program} in {pod}")


def find_process(cluster: Cluster, pod: str, program: str) -> int | None:
    """Look for it once, among all below this standalone's launcher."""
    found = [cluster.up.launch.pid]
    while found:
        process = Path(f"/proc/{found.pop()}")
        with suppress(OSError):
            for task in (process / "task").iterdir():
                found += map(int, (task / "children").read_text().split())
            here = f"POD_NAME={pod}".encode() in (process / "environ").read_bytes().split(b"\0")
            if here and program.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return int(process.name)
    return None


def test_two_profiles_become_ready_side_by_side_and_answer(served: Served, code: Served) -> None:
    for each in (served, code):
        each.wait("Ready", "True", timeout_s=START_S)
        assert each.complete()["usage"]["completion_tokens"] == 4
    shown = served.cluster.kubectl("get", "sp", "-n", NAMESPACE).stdout
    assert "Serving on 2 of 2 pods" in shown
    assert "Serving on 1 of 1 pods" in shown
    assert "finalizers" not in served.body["metadata"]
    served.wait("TelemetryHealthy", "True", timeout_s=30)
    assert served.status["knobs"]["enforced"] == served.status["knobs"]["desired"]


def test_new_bounds_are_obeyed_without_a_restart(served: Served) -> None:
    served.patch({"tuning": {"knobs": {"tokenBudget": {**BUDGET_BOUNDS, "max": 128, "start": 128}}}})
    served.patch({"objectives": [{"name": "chat", "ttftMs": 4000, "targetPercent": "90"}]})
    served.wait("TelemetryHealthy", "Unknown", "ObjectivesNotObeyedYet", timeout_s=30)
    soon(lambda: served.status["knobs"].get("enforced", {}).get("tokenBudget") == 128, 30)
    for pod in served.engines:
        assert served.knobs(pod)["enforced"]["tokenBudget"] == 128
        assert served.pod(pod)["status"]["containerStatuses"][0]["restartCount"] == 0
    served.wait("TelemetryHealthy", "True", timeout_s=180)  # the kubelet has handed on the objectives


def test_changed_policies_reach_the_pods_without_a_restart(served: Served) -> None:
    def enforced(pod: str) -> dict[str, Any]:
        policies: dict[str, Any] = served.knobs(pod)["enforced"]["policies"]
        return policies

    served.patch({"scheduling": {"protection": {"prefillPercent": 30}, "adaptiveChunk": {"itlMs": 50}}})
    soon(lambda: all(enforced(pod)["adaptiveChunk"] for pod in served.engines), 30)
    for pod in served.engines:
        assert enforced(pod)["adaptiveChunk"]["itlS"] == 0.05
        assert enforced(pod)["protection"]["prefillPercent"] == 30
        assert served.pod(pod)["status"]["containerStatuses"][0]["restartCount"] == 0
    soon(lambda: served.status["knobs"].get("enforced"), 30)
    assert served.knobs(served.engines[0])["accepted"]["tokenBudget"] == 128


def test_killed_processes_come_back_with_the_knobs_in_force(served: Served) -> None:
    def restarts(pod: str) -> int:
        count: int = served.pod(pod)["status"]["containerStatuses"][0]["restartCount"]
        return count

    for pod, program in zip(served.engines, ("leeway_cli", "leeway_engine.server.loop"), strict=True):
        os.kill(process_of(served.cluster, pod, program), signal.SIGKILL)
    soon(lambda: all(restarts(pod) == 1 for pod in served.engines), START_S)
    served.wait("Ready", "True", timeout_s=START_S)
    for pod in served.engines:
        assert served.knobs(pod)["accepted"]["tokenBudget"] == 128
        assert served.metric(pod, 'leeway_engine_knob_pushes_total{status="200"}') == 0, "it booted with them"


def test_what_others_delete_or_edit_is_put_right(served: Served) -> None:
    cluster, names = served.cluster, ("-n", NAMESPACE)
    old = served.pod(served.engines[0])["metadata"]["uid"]
    token = cluster.get("secret", "chat-knob-token", *names)["data"]
    # These are not watched, so they come back with what is: they go first.
    cluster.kubectl("delete", *UNWATCHED, *names)
    cluster.kubectl("delete", "service/chat-gateway", "configmap/chat-objectives", "configmap/chat-knobs", *names)
    cluster.kubectl("delete", "pod", served.engines[0], *names, "--wait=false", "--grace-period=1")
    cluster.kubectl("scale", "statefulset/chat-engine", "--replicas=3", *names)

    def right() -> bool:
        found = cluster.kubectl("get", KINDS, *names, "-l", "leeway.dev/profile=chat", "-o", "name").stdout
        return (
            {"service/chat-gateway", "configmap/chat-objectives", "configmap/chat-knobs", *UNWATCHED}
            <= set(found.split())
            and cluster.get("statefulset", "chat-engine", *names)["spec"]["replicas"] == 2
            and "pod/chat-engine-2" not in found
        )

    soon(right, 60)
    soon(lambda: served.pod(served.engines[0])["metadata"]["uid"] != old, 30)
    served.wait("Ready", "True", timeout_s=START_S)
    assert served.record["incumbent"]["tokenBudget"] == 128
    assert served.knobs(served.engines[0])["accepted"]["tokenBudget"] == 128
    assert served.metric(served.engines[0], 'leeway_engine_knob_pushes_total{status="200"}') == 0, "it booted with them"
    assert cluster.get("secret", "chat-knob-token", *names)["data"] == token


def test_what_goes_wrong_at_first_is_readable_and_can_be_put_right(code: Served) -> None:
    def summary() -> str:
        return code.cluster.kubectl("get", "sp", "code", "-n", NAMESPACE).stdout

    code.patch({"engine": {"resources": {"requests": {"cpu": "1000"}}}})
    code.wait("Ready", "False", "Unschedulable")
    assert "Insufficient cpu" in summary()
    code.patch({"engine": {"resources": None, "image": "leeway/leeway:none"}})
    soon(lambda: "leeway/leeway:none" in summary(), 60)
    code.patch({"engine": {"image": None}, "model": "/models/none"})
    code.wait("Ready", "False", "Crashing", timeout_s=START_S)
    assert "There is no model at /models/none" in summary()
    code.patch({"model": "/models/tiny"})
    code.wait("Ready", "True", timeout_s=START_S)


def test_deleting_needs_no_operator_and_leaves_nothing(served: Served, code: Served) -> None:
    cluster = served.cluster
    operator = ("deployment/leeway-operator", "-n", SYSTEM)
    cluster.kubectl("scale", *operator, "--replicas=0")
    try:
        cluster.kubectl("wait", "pod", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator", "--for=delete")
        cluster.kubectl("delete", "sp", "chat", "code", "-n", NAMESPACE, "--timeout=10s")

        def left() -> str:
            return cluster.kubectl("get", KINDS, "-n", NAMESPACE, "-l", "leeway.dev/profile", "-o", "name").stdout

        soon(lambda: not left(), 60, what="nothing left of the profiles")
    finally:
        cluster.kubectl("scale", *operator, "--replicas=1")
        cluster.wait_ready(SYSTEM, "deployment/leeway-operator")
