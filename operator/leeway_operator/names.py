"""What the children of a profile are called, labelled and reached by."""

from collections.abc import Mapping
from dataclasses import dataclass

ENGINE_PORT = 8000
KNOBS_PORT = 8001
GATEWAY_PORT = 8000
GATEWAY_METRICS_PORT = 8001
PROFILE_LABEL = "leeway.dev/profile"
GATEWAY_LABEL = "leeway.dev/gateway"
COMPONENT_LABEL = "leeway.dev/component"

PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Event": "/api/v1/namespaces/{}/events",
    "Pod": "/api/v1/namespaces/{}/pods",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "PodMonitor": "/apis/monitoring.coreos.com/v1/namespaces/{}/podmonitors",
    "ServingProfile": "/apis/leeway.dev/v1alpha1/namespaces/{}/servingprofiles",
}


def path_to(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of a collection, or of an object in it."""
    collection = PATHS[kind].format(namespace)
    return f"{collection}/{name}" if name else collection


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a profile's children, all made of its own."""

    profile: str

    @property
    def engine(self) -> str:
        """Of the engine's StatefulSet, headless Service and ServiceAccount."""
        return f"{self.profile}-engine"

    @property
    def gateway(self) -> str:
        """Of the gateway's Deployment, Service, ServiceAccount, Role and RoleBinding."""
        return f"{self.profile}-gateway"

    @property
    def objectives(self) -> str:
        """Of the ConfigMap with the objectives."""
        return f"{self.profile}-objectives"

    @property
    def knobs(self) -> str:
        """Of the ConfigMap with the knobs that pods boot from, and the record."""
        return f"{self.profile}-knobs"

    @property
    def token(self) -> str:
        """Of the Secret with the token of the knob endpoints."""
        return f"{self.profile}-knob-token"

    def pod(self, ordinal: int) -> str:
        """Of an engine pod."""
        return f"{self.engine}-{ordinal}"

    def ordinal(self, pod: str) -> int | None:
        """Place of a pod in the StatefulSet, by its name; None where it is none of its pods."""
        stem, _, number = pod.rpartition("-")
        return int(number) if stem == self.engine and number.isdecimal() else None

    def makes_pods(self, reference: Mapping[str, str]) -> bool:
        """Tell whether the object that is referred to makes this profile's pods."""
        kind, name = reference.get("kind"), reference.get("name", "")
        if kind == "ReplicaSet":  # of the Deployment, after which it is called
            return name.rpartition("-")[0] == self.gateway
        return kind == "StatefulSet" and name == self.engine

    def selector(self, *components: str) -> str:
        """Label selector of the pods of these components."""
        among = f"={components[0]}" if len(components) == 1 else f" in ({','.join(components)})"
        return f"{PROFILE_LABEL}={self.profile},{COMPONENT_LABEL}{among}"
