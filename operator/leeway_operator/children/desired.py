"""All children but those with a history: the token's Secret and the knobs' ConfigMap."""

from collections.abc import Mapping

from leeway_operator.children import engine, gateway
from leeway_operator.children.configuration import objectives_configuration
from leeway_operator.children.engine import engine_children
from leeway_operator.children.gateway import gateway_children
from leeway_operator.children.parts import Object, child
from leeway_operator.names import PROFILE_LABEL
from leeway_operator.profile import Profile


def children(profile: Profile, image: str, monitor_labels: Mapping[str, str] | None) -> list[Object]:
    """Return what should be there for a profile, in the order of making it.

    `monitor_labels` are those by which a Prometheus selects its PodMonitors; None makes no PodMonitor.
    """
    return [
        objectives_configuration(profile),
        *engine_children(profile, image),
        *gateway_children(profile, image),
        *([] if monitor_labels is None else [_pod_monitor(profile, monitor_labels)]),
    ]


def _pod_monitor(profile: Profile, added: Mapping[str, str]) -> Object:
    """Return what tells the Prometheus Operator to scrape both components; it counts where its CRD is installed."""
    relabelled = [
        {"sourceLabels": [f"__meta_kubernetes_pod_label_app_kubernetes_io_{label}"], "targetLabel": target}
        for label, target in (("name", "app"), ("component", "component"))
    ]
    endpoints = [
        {"port": port, "relabelings": [*relabelled, {"sourceLabels": ["component"], "regex": of, "action": "keep"}]}
        for of, port in ((engine.COMPONENT, "http"), (gateway.COMPONENT, "metrics"))
    ]
    spec = {"selector": {"matchLabels": {PROFILE_LABEL: profile.name}}, "podMetricsEndpoints": endpoints}
    monitor = child(profile, "monitoring.coreos.com/v1", "PodMonitor", profile.name, gateway.COMPONENT, spec=spec)
    monitor["metadata"]["labels"] |= added
    return monitor
