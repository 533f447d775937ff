"""Profiles with tiny models in a standalone."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import fake_prometheus
from clusters import Cluster, eventually, pod
from leeway_operator.children.configuration import objectives_digest
from leeway_operator.profile import Profile
from serving import tiny_model

MODELS = "models"
MODEL = "/models/tiny"
PROMETHEUS = "http://prometheus.leeway-system.svc:9090"
CONDITIONS = ("Ready", "TelemetryHealthy", "SLOMet", "Tuning", "Degraded", "Paused")
START_S = 200
"""Longest time for engine pods to start on a machine that has much else to do."""
BUDGET_BOUNDS = {"min": 32, "max": 256, "step": 32, "start": 256}

T = TypeVar("T")


def soon(look: Callable[[], T], timeout_s: float = 60, what: str = "") -> T:
    """Return the first truthy answer of `look`, asking seldom enough to leave the machine to what is waited for."""
    return eventually(look, timeout_s, every_s=1.5, what=what)


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
            return soon(holds, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{kind} is not {status} {reason}: {json.dumps(self.status, indent=1)}") from error

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Change the spec."""
        content = json.dumps({"spec": spec})
        self.cluster.kubectl("patch", "sp", self.name, "-n", self.namespace, "--type=merge", "-p", content)

    @property
    def engines(self) -> list[str]:
        """Names of its engine pods."""
        return [f"{self.name}-engine-{ordinal}" for ordinal in range(self.body["spec"]["replicas"])]

    @property
    def record(self) -> dict[str, Any]:
        """What is on record of its knobs."""
        data = self.cluster.get("configmap", f"{self.name}-knobs", "-n", self.namespace)["data"]
        record: dict[str, Any] = json.loads(data["record"])
        return record

    def pod(self, name: str) -> dict[str, Any]:
        """Return a pod."""
        body: dict[str, Any] = self.cluster.get("pod", name, "-n", self.namespace)
        return body

    def knobs(self, pod: str) -> dict[str, Any]:
        """Return what a pod says of its knobs."""
        answer: dict[str, Any] = json.loads(self._call(pod, "GET", "8001/v1/knobs"))
        return answer

    def push(self, pod: str, knobs: Mapping[str, Any]) -> None:
        """Push knobs to a pod, as somebody who is not the operator."""
        self._call(pod, "PUT", "8001/v1/knobs", knobs)

    def metric(self, pod: str, series: str) -> float:
        """Return a value from the metrics of an engine pod."""
        lines = self._call(pod, "GET", "8000/metrics").splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(series)), 0.0)

    def complete(self) -> dict[str, Any]:
        """Send a request through the gateway, from inside the cluster."""
        body = {"model": self.name, "prompt": "Hello", "max_tokens": 4, "ignore_eos": True}
        url = f"http://{self.name}-gateway.{self.namespace}.svc/v1/completions"
        answer: dict[str, Any] = json.loads(self._request(self.engines[-1], "POST", url, body))
        return answer

    def _call(self, pod: str, method: str, place: str, body: object | None = None) -> str:
        return self._request(pod, method, f"http://127.0.0.1:{place}", body)

    def _request(self, pod: str, method: str, url: str, body: object | None) -> str:
        code = (
            "import sys, urllib.request as u; token = open('/etc/leeway/token/token').read();"
            "headers = {'Authorization': 'Bearer ' + token, 'Content-Type': 'application/json'};"
            "r = u.Request(sys.argv[2], (sys.argv[3] or None) and sys.argv[3].encode(), headers, method=sys.argv[1]);"
            "print(u.urlopen(r, timeout=30).read().decode())"
        )
        content = "" if body is None else json.dumps(body)
        return self.cluster.exec(self.namespace, pod, "python", "-c", code, method, url, content)


class FakePrometheus:
    """A Prometheus in a pod that answers what a test wants, for the gateways of one profile."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        metadata = {"namespace": namespace, "name": name, "uid": "", "generation": 1}
        self.digest = objectives_digest(Profile.read({"metadata": metadata, "spec": spec}))
        self.url = f"http://{name}.{namespace}.svc:{fake_prometheus.PORT}"

    def start(self) -> None:
        """Make its pod and its Service."""
        code = Path(fake_prometheus.__file__).read_text()
        mount = {"name": "state", "mountPath": "/state"}
        volume = {"name": "state", "emptyDir": {}}
        command = ["python", "-c", code, self.digest]
        server = pod(self.name, command, container={"volumeMounts": [mount]}, volumes=[volume])
        ports = [{"port": fake_prometheus.PORT}]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name},
            "spec": {"selector": {"app": self.name}, "ports": ports},
        }
        self.cluster.apply(server, service, namespace=self.namespace)
        self.cluster.wait_ready(self.namespace, self.name)

    def stop(self) -> None:
        """Delete its pod."""
        self.cluster.kubectl("delete", "pod", self.name, "-n", self.namespace, "--grace-period=1")

    def answer(self, mode: str) -> None:
        """Have it answer `values`, `empty`, `nan`, `stale`, `error`, `former` or `changed` from now on."""
        code = f"open('/state/mode', 'w').write({mode!r})"
        self.cluster.exec(self.namespace, self.name, "python", "-c", code)
