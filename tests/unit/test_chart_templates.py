"""What the real Helm makes of the chart."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway_standalone.binaries import ensure

CHART = Path(__file__).parents[2] / "charts" / "leeway"
CLUSTER_KINDS = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
MONITORING = ("--api-versions", "monitoring.coreos.com/v1")

Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="session")
def helm() -> Path:
    return ensure(["helm"])["helm"]


def run(helm: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([helm, *arguments], capture_output=True, text=True, timeout=60, check=False)


def template(helm: Path, *arguments: str) -> Objects:
    """Return what the chart makes as release `leeway` in namespace `system`: objects by kind and name."""
    done = run(helm, "template", "leeway", str(CHART), "--namespace", "system", *arguments)
    assert done.returncode == 0, done.stderr
    objects = [entry for entry in yaml.safe_load_all(done.stdout) if entry]
    return {(entry["kind"], _name(entry["metadata"])): entry for entry in objects}


def _name(metadata: dict[str, Any]) -> str:
    namespace = metadata.get("namespace", "system")
    return metadata["name"] if namespace == "system" else f"{namespace}/{metadata['name']}"


def pods(objects: Objects) -> Iterator[dict[str, Any]]:
    return (entry["spec"]["template"]["spec"] for (kind, _), entry in objects.items() if kind == "Deployment")


def rules(objects: Objects, kind: str, name: str) -> set[tuple[str, str]]:
    """Return what a role allows as pairs of resource and verb."""
    return {
        (resource, verb)
        for entry in objects[kind, name]["rules"]
        for resource in entry["resources"]
        for verb in entry["verbs"]
    }


def test_lint_finds_nothing(helm: Path) -> None:
    done = run(helm, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_both_components_run_the_command_of_the_image(helm: Path) -> None:
    objects = template(helm)
    (operator,) = objects["Deployment", "leeway-operator"]["spec"]["template"]["spec"]["containers"]
    (tuner,) = objects["Deployment", "leeway-tuner"]["spec"]["template"]["spec"]["containers"]
    assert operator["image"] == tuner["image"] == "leeway/leeway:0.1.0"
    assert operator["args"] == [
        "operator",
        "--image=leeway/leeway:0.1.0",
        "--tuner-url=http://leeway-tuner.system.svc:8081",
        "--host=0.0.0.0",
        "--liveness-port=8080",
        "--metrics-port=9090",
    ]
    assert tuner["args"][0] == "tuner"
    assert "command" not in operator


def test_one_writer_each(helm: Path) -> None:
    for (kind, _), entry in template(helm).items():
        if kind == "Deployment":
            assert entry["spec"]["replicas"] == 1
            assert entry["spec"]["strategy"] == {"type": "Recreate"}


def test_pods_fulfil_pod_security_restricted(helm: Path) -> None:
    for pod in pods(template(helm)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
            assert container["resources"]["limits"]["memory"]


def test_the_tuner_has_no_api_token(helm: Path) -> None:
    objects = template(helm)
    assert objects["ServiceAccount", "leeway-tuner"]["automountServiceAccountToken"] is False
    pod = objects["Deployment", "leeway-tuner"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("leeway-tuner", False)
    bindings = [entry for (kind, _), entry in objects.items() if kind.endswith("Binding")]
    subjects = {subject["name"] for entry in bindings for subject in entry["subjects"]}
    assert subjects == {"leeway-operator"}


def test_the_operator_may_make_children_and_write_status_but_never_profiles_and_deletes_nothing(helm: Path) -> None:
    allowed = rules(template(helm), "ClusterRole", "leeway-operator")
    assert ("servingprofiles/status", "patch") in allowed
    assert ("statefulsets", "patch") in allowed
    assert {verb for resource, verb in allowed if resource == "servingprofiles"} == {"get", "list", "watch"}
    assert {verb for resource, verb in allowed if resource == "secrets"} == {"get", "create", "patch"}
    assert not {verb for _, verb in allowed} & {"*", "delete", "deletecollection", "update"}


def test_a_namespaced_install_needs_nothing_of_the_cluster(helm: Path) -> None:
    objects = template(helm, "--set", "watchNamespaces={a,b},crds.install=false")
    assert not {kind for kind, _ in objects} & CLUSTER_KINDS
    assert ("Role", "a/leeway-operator") in objects
    binding = objects["RoleBinding", "b/leeway-operator"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "leeway-operator", "namespace": "system"}]
    assert "customresourcedefinitions" not in {resource for resource, _ in rules(objects, "Role", "a/leeway-operator")}
    (operator,) = objects["Deployment", "leeway-operator"]["spec"]["template"]["spec"]["containers"]
    assert operator["args"][-2:] == ["--namespace=a", "--namespace=b"]


def test_the_crd_is_the_generated_one_and_kept_unless_told_otherwise(helm: Path) -> None:
    name = ("CustomResourceDefinition", "servingprofiles.leeway.dev")
    crd = template(helm)[name]
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == yaml.safe_load((CHART.parents[1] / "crds" / "leeway.dev_servingprofiles.yaml").read_text())
    assert "annotations" not in template(helm, "--set", "crds.keep=false")[name]["metadata"]


def test_built_in_roles_reach_profiles(helm: Path) -> None:
    objects = template(helm)
    view, edit = rules(objects, "ClusterRole", "leeway-view"), rules(objects, "ClusterRole", "leeway-edit")
    assert {verb for _, verb in view} == {"get", "list", "watch"}
    assert ("servingprofiles", "create") in edit
    assert ("servingprofiles/status", "patch") not in edit


@pytest.mark.parametrize(
    ("values", "volume"),
    [
        ({}, {"persistentVolumeClaim": {"claimName": "leeway-tuner"}}),
        ({"existingClaim": "mine"}, {"persistentVolumeClaim": {"claimName": "mine"}}),
        ({"enabled": False}, {"emptyDir": {}}),
    ],
)
def test_studies_are_kept_where_the_values_say(helm: Path, values: dict[str, Any], volume: dict[str, Any]) -> None:
    objects = template(helm, "--set-json", f"tuner.persistence={json.dumps(values)}")
    (data,) = objects["Deployment", "leeway-tuner"]["spec"]["template"]["spec"]["volumes"]
    assert data == {"name": "data", **volume}
    assert (("PersistentVolumeClaim", "leeway-tuner") in objects) == (not values)


def test_one_file_of_rules_feeds_configmap_and_prometheusrule(helm: Path) -> None:
    written = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    objects = template(helm, *MONITORING)
    config = objects["ConfigMap", "leeway-rules"]
    assert config["metadata"]["labels"]["leeway.dev/prometheus-rules"] == "true"
    assert yaml.safe_load(config["data"]["leeway.yaml"]) == written
    assert objects["PrometheusRule", "leeway"]["spec"] == written


def test_prometheus_operator_objects_come_only_where_wanted_and_known(helm: Path) -> None:
    kinds = {"PrometheusRule", "PodMonitor"}
    assert not kinds & {kind for kind, _ in template(helm)}
    assert not kinds & {kind for kind, _ in template(helm, *MONITORING, "--set", "prometheusOperator.enabled=false")}
    labelled = template(helm, *MONITORING, "--set", "prometheusOperator.labels.release=prom")
    for kind in kinds:
        assert labelled[kind, "leeway"]["metadata"]["labels"]["release"] == "prom"


def test_podmonitors_of_profiles_are_as_the_values_say(helm: Path) -> None:
    def operator(*arguments: str) -> tuple[set[str], set[tuple[str, str]]]:
        objects = template(helm, *arguments)
        (container,) = objects["Deployment", "leeway-operator"]["spec"]["template"]["spec"]["containers"]
        options = {each for each in container["args"] if "pod-monitor" in each}
        return options, {each for each in rules(objects, "ClusterRole", "leeway-operator") if "podmonitors" in each}

    allowed = {("podmonitors", "create"), ("podmonitors", "patch")}
    assert operator() == (set(), allowed)
    labels = ("--set-json", 'prometheusOperator.labels={"release": "prom", "example.com/team": "a=b"}')
    wanted = {"--pod-monitor-label=release=prom", "--pod-monitor-label=example.com/team=a=b"}
    assert operator(*labels) == (wanted, allowed)
    assert operator("--set", "prometheusOperator.enabled=false") == ({"--no-pod-monitors"}, set())


def test_whoever_is_let_may_read_the_tuners_decisions_and_nothing_else(helm: Path) -> None:
    objects = template(helm)
    (rule,) = objects["Role", "leeway-explain"]["rules"]
    assert rule["resourceNames"] == ["leeway-tuner:http"]
    assert (rule["resources"], rule["verbs"]) == (["services/proxy"], ["get"])
    assert "http" in {port["name"] for port in objects["Service", "leeway-tuner"]["spec"]["ports"]}


def test_metrics_are_announced_on_the_port_that_serves_them(helm: Path) -> None:
    for (kind, _), entry in template(helm).items():
        if kind == "Deployment":
            template_ = entry["spec"]["template"]
            ports = {port["name"]: port["containerPort"] for port in template_["spec"]["containers"][0]["ports"]}
            assert template_["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])


def test_labels_and_annotations_of_pods_can_be_added_and_scraping_turned_off(helm: Path) -> None:
    added = {"podLabels": {"team": "x"}, "podAnnotations": {"prometheus.io/scrape": "false", "note": "y"}}
    settings = [f"--set-json={name}={json.dumps(entries)}" for name, entries in added.items()]
    metadata = template(helm, *settings)["Deployment", "leeway-tuner"]["spec"]["template"]["metadata"]
    assert metadata["labels"]["team"] == "x"
    assert metadata["labels"]["app.kubernetes.io/component"] == "tuner"
    assert metadata["annotations"] == {"prometheus.io/scrape": "false", "prometheus.io/port": "9090", "note": "y"}


def test_network_policies_let_only_the_operator_reach_the_tuner(helm: Path) -> None:
    objects = template(helm, "--set", "networkPolicy.enabled=true")
    metrics, http = objects["NetworkPolicy", "leeway-tuner"]["spec"]["ingress"]
    assert metrics == {"ports": [{"port": "metrics"}]}
    assert http["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    assert "NetworkPolicy" not in {kind for kind, _ in template(helm)}


def test_large_numbers_from_values_files_stay_whole(helm: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.json"
    values.write_text(json.dumps({"podSecurityContext": {"runAsUser": 1000680000, "supplementalGroups": [1000680000]}}))
    for pod in pods(template(helm, "--values", str(values))):
        assert pod["securityContext"]["runAsUser"] == 1000680000
        assert pod["securityContext"]["supplementalGroups"] == [1000680000]
        assert pod["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("tuner.replicas=2", "additional properties 'replicas' not allowed"),
        ("watchNamespaces={*}", "does not match pattern"),
        ("image.pullPolicy=Sometimes", "must be one of"),
        ("tuner.persistence.size=lots", "does not match pattern"),
        ("operator.resources.limit.cpu=1", "additional properties 'limit' not allowed"),
    ],
)
def test_values_that_mean_nothing_are_refused(helm: Path, setting: str, complaint: str) -> None:
    done = run(helm, "template", "leeway", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_names_follow_the_release(helm: Path) -> None:
    done = run(helm, "template", "blue", str(CHART), "--namespace", "system")
    assert "name: blue-leeway-operator" in done.stdout
    assert "name: blue-leeway-rules" in done.stdout
