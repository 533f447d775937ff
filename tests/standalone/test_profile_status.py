"""The operator, in its own pod and with its own rights, says how a profile stands."""

import json
from typing import Any

from clusters import Cluster, eventually

PROFILE = {
    "apiVersion": "leeway.dev/v1alpha1",
    "kind": "ServingProfile",
    "metadata": {"name": "chat"},
    "spec": {"model": "models/tiny", "objectives": [{"name": "chat", "ttftMs": 500}]},
}


def status_of(cluster: Cluster, namespace: str, generation: int) -> dict[str, Any]:
    def observed() -> dict[str, Any]:
        status: dict[str, Any] = cluster.get("sp", "chat", "-n", namespace).get("status", {})
        return status if status.get("observedGeneration") == generation else {}

    return eventually(observed, what=f"status of generation {generation}")


def test_a_profile_says_how_it_stands_and_goes_at_once(cluster: Cluster, namespace: str) -> None:
    cluster.apply(PROFILE, namespace=namespace)
    first = status_of(cluster, namespace, 1)
    conditions = {condition["type"]: condition for condition in first["conditions"]}
    assert set(conditions) == {"Ready", "TelemetryHealthy", "SLOMet", "Tuning", "Degraded", "Paused"}
    shown = ("sp", "chat", "-n", namespace)
    eventually(lambda: cluster.get(*shown)["status"]["summary"] in cluster.kubectl("get", *shown).stdout)

    patch = json.dumps({"spec": {"telemetry": {"prometheus": {"url": "http://nowhere.invalid:9090"}}}})
    cluster.kubectl("patch", "sp", "chat", "-n", namespace, "--type=merge", "-p", patch)
    second = {condition["type"]: condition for condition in status_of(cluster, namespace, 2)["conditions"]}
    assert second["TelemetryHealthy"]["reason"] == "PrometheusError"
    assert second["Ready"]["lastTransitionTime"] == conditions["Ready"]["lastTransitionTime"]

    assert "finalizers" not in cluster.get("sp", "chat", "-n", namespace)["metadata"]
    cluster.kubectl("delete", "sp", "chat", "-n", namespace, "--timeout=10s")
