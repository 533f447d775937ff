"""The chart, installed by the real Helm: its whole life, its rights, and what it gives to Prometheus."""

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from clusters import Cluster, eventually, pod
from leeway_standalone.environment import chart_folder, installation_version

CHART = str(chart_folder())
CRD = "servingprofiles.leeway.dev"
IMAGE = f"image.tag={installation_version()}"


def owned(cluster: Cluster, release: str) -> list[str]:
    """List all objects of any kind that belong to a release."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    kinds = [kind for kind in kinds if not kind.startswith("events")]
    selector = f"app.kubernetes.io/instance={release}"
    found = cluster.kubectl("get", ",".join(kinds), "-A", "-l", selector, "-o", "name", "--ignore-not-found")
    return found.stdout.split()


def test_install_upgrade_rollback_uninstall(cluster: Cluster, namespace: str) -> None:
    scope = ("--set", f"watchNamespaces={{{namespace}}},crds.install=false,{IMAGE}")
    release = ("team", CHART, "-n", namespace, "--wait", "--timeout=90s")
    cluster.helm("install", *release, *scope)
    cluster.helm("upgrade", *release, *scope, "--set", "operator.resources.limits.memory=300Mi")

    def memory() -> str:
        (deployment,) = cluster.get("deployment", "-n", namespace, "-l", "app.kubernetes.io/component=operator")[
            "items"
        ]
        return str(deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"])

    assert memory() == "300Mi"
    cluster.helm("rollback", "team", "1", "-n", namespace, "--wait")
    assert memory() == "512Mi"
    assert not [name for name in owned(cluster, "team") if "clusterrole" in name], (
        "a namespaced release asks for no more"
    )
    cluster.helm("uninstall", "team", "-n", namespace, "--wait")
    eventually(lambda: not owned(cluster, "team"), what="nothing left of the release")


def test_uninstall_takes_the_crd_only_when_told_to(place: Path) -> None:
    with Cluster.running(place) as cluster:
        cluster.helm("uninstall", "leeway", "-n", "leeway-system", "--wait")
        eventually(lambda: not owned(cluster, "leeway"), what="nothing left but the CRD")
        assert cluster.kubectl("get", "crd", CRD, check=False).returncode == 0
        again = ("leeway", CHART, "-n", "leeway-system", "--set", IMAGE, "--wait", "--timeout=90s")
        cluster.helm("install", *again, "--set", "crds.keep=false", "--take-ownership")
        cluster.helm("uninstall", "leeway", "-n", "leeway-system", "--wait")
        eventually(lambda: not owned(cluster, "leeway"), what="nothing left of the release")
        assert cluster.kubectl("get", "crd", CRD, check=False).returncode != 0


def test_leeways_pods_have_their_own_rights_and_no_more(cluster: Cluster) -> None:
    def may(account: str, *what: str) -> bool:
        user = f"--as=system:serviceaccount:leeway-system:{account}"
        return cluster.kubectl("auth", "can-i", *what, user, "-A", check=False).stdout.strip() == "yes"

    assert may("leeway-operator", "watch", "servingprofiles.leeway.dev")
    assert may("leeway-operator", "patch", "servingprofiles.leeway.dev", "--subresource=status")
    assert not may("leeway-operator", "patch", "servingprofiles.leeway.dev")
    assert not may("leeway-operator", "delete", "servingprofiles.leeway.dev")
    assert not may("leeway-operator", "list", "secrets")
    assert not may("leeway-tuner", "list", "pods")


def test_prometheus_sees_leeway_and_its_rules(cluster: Cluster) -> None:
    base = f"http://127.0.0.1:{cluster.up.launch.ports.prometheus}/api/v1"

    def ask(path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{base}/{path}", timeout=10) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
            return data

    eventually(lambda: "leeway:component:up" in json.dumps(ask("rules")), 90, what="the chart's rules are loaded")
    query = urllib.parse.quote("leeway:component:up")

    def components() -> list[str]:
        return [item["value"][1] for item in ask(f"query?query={query}")["result"]]

    eventually(lambda: components() == ["1", "1"], 60, what="operator and tuner are seen as up")


def test_the_python_client_verifies_the_server(cluster: Cluster, namespace: str) -> None:
    api = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(cluster.state.kubeconfig)))
    assert api.api_client.configuration.verify_ssl
    assert [node.metadata.name for node in api.list_node().items] == ["leeway"]
    api.create_namespaced_pod(namespace, pod("made-in-python", ["sleep", "60"]))
    cluster.wait_ready(namespace, "made-in-python")
    api.api_client.close()


def test_the_gateways_port_reaches_the_labelled_service(cluster: Cluster, namespace: str) -> None:
    port = cluster.up.launch.ports.gateway
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
    with refused.value as answer:
        assert answer.code == 503
        assert "ServingProfile" in answer.read().decode()
    serve = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8080)"
    web = pod("gateway", ["python", "-c", serve], container={"workingDir": "/usr/share"})
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gateway", "labels": {"leeway.dev/gateway": "true"}},
        "spec": {"selector": {"app": "gateway"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    cluster.apply(web, service, namespace=namespace)
    cluster.wait_ready(namespace, "gateway")

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    eventually(answers, 20)
