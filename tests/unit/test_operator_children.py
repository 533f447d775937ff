"""The objects that a profile gets."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from leeway_cli import operator as command
from leeway_operator import main
from leeway_operator.children import children
from operator_doubles import World
from typer import BadParameter

Children = dict[tuple[str, str], dict[str, Any]]


def made(monitor_labels: Mapping[str, str] | None = None) -> Children:
    return {
        (item["kind"], item["metadata"]["name"]): item
        for item in children(World().profile, "leeway/leeway:1", monitor_labels)
    }


def pod(objects: Children, kind: str, name: str) -> dict[str, Any]:
    template: dict[str, Any] = objects[kind, name]["spec"]["template"]
    return template


def test_engines_have_no_api_token() -> None:
    objects = made()
    assert objects["ServiceAccount", "chat-engine"]["automountServiceAccountToken"] is False
    spec = pod(objects, "StatefulSet", "chat-engine")["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("chat-engine", False)


def test_the_gateway_may_read_endpoint_slices_of_its_namespace_and_nothing_else() -> None:
    objects = made()
    roles = {name: item for (kind, name), item in objects.items() if "Role" in kind and not kind.endswith("Binding")}
    assert list(roles) == ["chat-gateway"]
    read = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    assert roles["chat-gateway"]["rules"] == [read]
    binding = objects["RoleBinding", "chat-gateway"]
    assert binding["roleRef"]["name"] == "chat-gateway"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "chat-gateway", "namespace": "team"}]


def test_a_podmonitor_has_the_labels_that_a_prometheus_selects_by_and_is_left_out_where_nobody_wants_it() -> None:
    labels = made({"release": "prom"})["PodMonitor", "chat"]["metadata"]["labels"]
    assert (labels["release"], labels["leeway.dev/profile"]) == ("prom", "chat")
    assert ("PodMonitor", "chat") in made({})
    assert ("PodMonitor", "chat") not in made(None)


@pytest.mark.parametrize(
    ("kind", "name", "component", "port"),
    [
        ("StatefulSet", "chat-engine", "engine", "http"),
        ("Deployment", "chat-gateway", "gateway", "metrics"),
    ],
)
def test_a_podmonitor_scrapes_each_pod_once_under_the_labels_of_rules_and_dashboard(
    kind: str, name: str, component: str, port: str
) -> None:
    objects = made({})
    template, monitor = pod(objects, kind, name), objects["PodMonitor", "chat"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {each["name"]: each["containerPort"] for each in template["spec"]["containers"][0]["ports"]}
    scraped = [
        (endpoint["port"], labels)
        for endpoint in monitor["podMetricsEndpoints"]
        if endpoint["port"] in ports
        and (labels := relabelled(template["metadata"]["labels"], endpoint["relabelings"])) is not None
    ]
    assert scraped == [(port, {"app": "leeway", "component": component})]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(ports[port]), "as any other Prometheus"


def relabelled(pod_labels: Mapping[str, str], rules: list[dict[str, Any]]) -> dict[str, str] | None:
    """Return the labels of a target as Prometheus makes them, or None if it is dropped."""
    known = {f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": v for name, v in pod_labels.items()}
    for rule in rules:
        value = ";".join(known.get(label, "") for label in rule["sourceLabels"])
        if rule.get("action", "replace") == "keep":
            if not re.fullmatch(rule["regex"], value):
                return None
        else:
            known[rule["targetLabel"]] = value
    return {name: value for name, value in known.items() if not name.startswith("__")}


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({}, {}),
        ({"pod_monitor_label": ["release=prom", "a/b=c=d"]}, {"release": "prom", "a/b": "c=d"}),
        ({"pod_monitors": False, "pod_monitor_label": ["release=prom"]}, None),
    ],
)
def test_the_command_line_says_whether_and_how_podmonitors_are_labelled(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], labels: dict[str, str] | None
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(main, "run", lambda **chosen: given.append(chosen["monitor_labels"]))
    command.operator(**options)
    assert given == [labels]
    with pytest.raises(BadParameter, match="NAME=VALUE"):
        command.operator(pod_monitor_label=["release"])
