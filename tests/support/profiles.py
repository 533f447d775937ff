"""Profiles with tiny models in a standalone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusters import Cluster, eventually
from serving import Answer, http, tiny_model

MODELS = "models"
MODEL = "/models/tiny"
PROMETHEUS = "http://prometheus.leeway-system.svc:9090"
CONDITIONS = ("Ready", "TelemetryHealthy", "SLOMet", "Tuning", "Degraded", "Paused")
BUDGET_BOUNDS = {"min": 32, "max": 256, "step": 32, "start": 256}


def models_claim(cluster: Cluster, namespace: str) -> None:
    """Make a volume with a tiny model in it, under the name that `profile` mounts."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": MODELS},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster.apply(claim, namespace=namespace)
    volume = eventually(lambda: cluster.get("pvc", MODELS, "-n", namespace)["spec"].get("volumeName"), 30)
    path = Path(cluster.get("pv", volume)["spec"]["hostPath"]["path"])
    tiny_model(cluster.state.volumes / path.name / "tiny")


def profile(name: str = "chat", *, mode: str = "Observe", replicas: int = 1, **spec: Any) -> dict[str, Any]:
    """Return a profile of the tiny model."""
    engine = {
        "modelClaim": MODELS,
        "args": ["--kv-blocks=256", "--threads=1"],
        "ceilings": {"tokenBudget": 256, "runningSequences": 32},
    }
    return {
        "apiVersion": "leeway.dev/v1alpha1",
        "kind": "ServingProfile",
        "metadata": {"name": name},
        "spec": {
            "model": MODEL,
            "replicas": replicas,
            "engine": {**engine, **spec.pop("engine", {})},
            "objectives": spec.pop("objectives", [{"name": "chat", "ttftMs": 5000, "targetPercent": "90"}]),
            "tuning": {
                "mode": mode,
                "windowSeconds": 10,
                "knobs": {"tokenBudget": BUDGET_BOUNDS},
                **spec.pop("tuning", {}),
            },
            "telemetry": {"prometheus": {"url": spec.pop("prometheus", PROMETHEUS)}},
            **spec,
        },
    }


class Served:
    """A profile that is there."""

    def __init__(self, cluster: Cluster, namespace: str, name: str = "chat") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name

    @property
    def body(self) -> dict[str, Any]:
        """The object."""
        body: dict[str, Any] = self.cluster.get("sp", self.name, "-n", self.namespace)
        return body

    @property
    def status(self) -> dict[str, Any]:
        """Its status."""
        status: dict[str, Any] = self.body.get("status", {})
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        """Return a condition, with empty fields before there is one."""
        found = {item["type"]: item for item in self.status.get("conditions", ())}
        return found.get(kind) or {"status": "", "reason": "", "message": ""}

    def wait(self, kind: str, status: str, reason: str = "", timeout_s: float = 60) -> dict[str, Any]:
        """Wait for a condition."""

        def holds() -> dict[str, Any]:
            found = self.condition(kind)
            return found if found["status"] == status and reason in ("", found["reason"]) else {}

        try:
            return eventually(holds, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{kind} is not {status} {reason}: {json.dumps(self.status, indent=1)}") from error

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Change the spec."""
        content = json.dumps({"spec": spec})
        self.cluster.kubectl("patch", "sp", self.name, "-n", self.namespace, "--type=merge", "-p", content)

    def pod_knobs(self, pod: str) -> dict[str, Any]:
        """Return what a pod says of its knobs, asked from inside it."""
        code = (
            "import urllib.request as u; token = open('/etc/leeway/token/token').read();"
            "r = u.Request('http://127.0.0.1:8001/v1/knobs', headers={'Authorization': 'Bearer ' + token});"
            "print(u.urlopen(r).read().decode())"
        )
        answer: dict[str, Any] = json.loads(self.cluster.exec(self.namespace, pod, "python", "-c", code))
        return answer

    def complete(self, base: str, **fields: Any) -> Answer:
        """Send a request to an address of its API."""
        body = {"model": self.name, "prompt": "Hello", "max_tokens": 4, "ignore_eos": True, **fields}
        return http("POST", f"{base}/v1/completions", body)
