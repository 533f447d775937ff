"""What children have in common."""

from collections.abc import Mapping
from typing import Any

from leeway_operator.names import COMPONENT_LABEL, PROFILE_LABEL
from leeway_operator.profile import Profile
from leeway_operator.spec import Resources

Object = dict[str, Any]

DRAIN_S = 330
"""How long a pod may take to finish what it has in hand: its own 300 s and a little."""
POD_SECURITY: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def child(profile: Profile, version: str, kind: str, name: str, component: str, **fields: Any) -> Object:
    """Return an object that the garbage collector deletes after the profile."""
    owner = {
        "apiVersion": "leeway.dev/v1alpha1",
        "kind": "ServingProfile",
        "name": profile.name,
        "uid": profile.uid,
        "controller": True,
    }
    metadata = {
        "name": name,
        "namespace": profile.namespace,
        "labels": labels(profile, component),
        "ownerReferences": [owner],
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def is_child(profile: Profile, body: Mapping[str, Any]) -> bool:
    """Tell whether an object is this profile's, and not one that another of the same name has left."""
    owners = body["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == profile.uid for owner in owners)


def labels(profile: Profile, component: str) -> dict[str, str]:
    """Return the labels of a child, or of a pod."""
    return {
        "app.kubernetes.io/name": "leeway",
        "app.kubernetes.io/instance": profile.name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "leeway-operator",
        **selector(profile, component),
    }


def selector(profile: Profile, component: str) -> dict[str, str]:
    """Return the labels by which the pods of a component are found; they never change."""
    return {PROFILE_LABEL: profile.name, COMPONENT_LABEL: component}


def pod_template(profile: Profile, component: str, metrics_port: int, spec: Object) -> Object:
    """Return the template of a component's pods, which announce their metrics to Prometheus."""
    return {
        "metadata": {
            "labels": labels(profile, component),
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(metrics_port)},
        },
        "spec": {"terminationGracePeriodSeconds": DRAIN_S, "securityContext": POD_SECURITY, **spec},
    }


def container(name: str, image: str, resources: Resources | None, ports: Mapping[str, int], **fields: Any) -> Object:
    """Return a container whose last words are in the pod's status when it fails."""
    given = resources.model_dump(exclude_none=True) if resources else {}
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [{"name": port, "containerPort": number} for port, number in ports.items()],
        **({"resources": given} if given else {}),
        **fields,
    }


def probe(path: str, port: str, period_s: int, failures: int, timeout_s: int = 1) -> Object:
    """Return an HTTP probe."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period_s,
        "failureThreshold": failures,
        "timeoutSeconds": timeout_s,
    }


def service(profile: Profile, name: str, component: str, port: int, target: str, **fields: Any) -> Object:
    """Return a Service of a component's OpenAI API."""
    spec = {
        "selector": selector(profile, component),
        "ports": [{"name": "http", "port": port, "targetPort": target, "protocol": "TCP"}],
        **fields,
    }
    return child(profile, "v1", "Service", name, component, spec=spec)
