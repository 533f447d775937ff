"""Where the Prometheus Operator's kinds are installed, a profile has its PodMonitor."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from clusters import Cluster, eventually
from profiles import profile

CRD = "podmonitors.monitoring.coreos.com"


def text(**keywords: Any) -> dict[str, Any]:
    return {"type": "string", **keywords}


def fields(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


def array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


@pytest.fixture
def kind(cluster: Cluster) -> Iterator[str]:
    """PodMonitor with the fields of it that Leeway sets, as the Prometheus Operator has them; any other is refused."""
    relabelling = fields(
        sourceLabels=array(text()),
        regex=text(),
        targetLabel=text(),
        action=text(enum=["replace", "keep"], default="replace"),
    )
    endpoint = fields(port=text(), relabelings=array(relabelling))
    labels = {"type": "object", "additionalProperties": text()}
    spec = fields(("selector",), selector=fields(matchLabels=labels), podMetricsEndpoints=array(endpoint))
    names = {"kind": "PodMonitor", "listKind": "PodMonitorList", "plural": "podmonitors", "singular": "podmonitor"}
    schema = {"openAPIV3Schema": fields(("spec",), spec=spec)}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    cluster.apply(definition, namespace="default")
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")
    yield CRD
    cluster.kubectl("delete", "crd", CRD)


def test_a_profile_has_its_podmonitor_which_comes_back_and_follows_the_profile(
    cluster: Cluster, namespace: str, kind: str
) -> None:
    made = profile(engine={"modelClaim": None})
    cluster.apply(made, namespace=namespace)
    shown = (kind, "chat", "-n", namespace)

    def monitor() -> dict[str, Any] | None:
        found = cluster.kubectl("get", *shown, "-o", "json", check=False).stdout
        return json.loads(found) if found else None

    first = eventually(monitor, 30, what="the PodMonitor")
    owner = cluster.get("sp", "chat", "-n", namespace)["metadata"]["uid"]
    assert [each["uid"] for each in first["metadata"]["ownerReferences"]] == [owner]
    assert [each["port"] for each in first["spec"]["podMetricsEndpoints"]] == ["http", "metrics"]

    cluster.kubectl("delete", *shown)
    patch = json.dumps({"spec": {"replicas": 2}})
    cluster.kubectl("patch", "sp", "chat", "-n", namespace, "--type=merge", "-p", patch)
    second = eventually(monitor, 30, what="another PodMonitor")
    assert second["spec"] == first["spec"]
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
