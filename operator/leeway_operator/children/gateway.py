"""The gateway in front of the engine pods."""

from leeway_operator.children.parts import Object, child, container, pod_template, probe, selector, service
from leeway_operator.names import GATEWAY_LABEL, GATEWAY_METRICS_PORT, GATEWAY_PORT
from leeway_operator.profile import Profile

COMPONENT = "gateway"
OBJECTIVES_FOLDER = "/etc/leeway/objectives"
OBJECTIVES_KEY = "objectives.json"


def gateway_children(profile: Profile, image: str) -> list[Object]:
    """Return the gateway's Deployment and what it needs.

    Of the cluster it may read the EndpointSlices of its namespace, and nothing else: no Role narrows a list to a label,
    so that it follows those of its own Service is by its own choice.
    """
    name = profile.names.gateway
    rule = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": profile.namespace}
    reached = service(profile, name, COMPONENT, 80, "http")
    reached["metadata"]["labels"] |= {GATEWAY_LABEL: "true"}
    return [
        child(profile, "v1", "ServiceAccount", name, COMPONENT),
        child(profile, "rbac.authorization.k8s.io/v1", "Role", name, COMPONENT, rules=[rule]),
        child(
            profile, "rbac.authorization.k8s.io/v1", "RoleBinding", name, COMPONENT, roleRef=role, subjects=[subject]
        ),
        reached,
        _deployment(profile, image),
    ]


def _deployment(profile: Profile, image: str) -> Object:
    name, gateway = profile.names.gateway, profile.spec.gateway
    main = container(
        "gateway",
        image,
        gateway.resources,
        {"http": GATEWAY_PORT, "metrics": GATEWAY_METRICS_PORT},
        args=[
            "gateway",
            f"--service={profile.names.engine}",
            f"--objectives-file={OBJECTIVES_FOLDER}/{OBJECTIVES_KEY}",
            f"--port={GATEWAY_PORT}",
            f"--metrics-port={GATEWAY_METRICS_PORT}",
        ],
        volumeMounts=[{"name": "objectives", "mountPath": OBJECTIVES_FOLDER, "readOnly": True}],
        startupProbe=probe("/healthz", "metrics", 1, 120),
        livenessProbe=probe("/healthz", "metrics", 10, 3, 5),
        readinessProbe=probe("/readyz", "metrics", 2, 1, 5),
    )
    spec = {
        "replicas": gateway.replicas,
        "selector": {"matchLabels": selector(profile, COMPONENT)},
        "template": pod_template(
            profile,
            COMPONENT,
            GATEWAY_METRICS_PORT,
            {
                "serviceAccountName": name,
                "containers": [main],
                "volumes": [{"name": "objectives", "configMap": {"name": profile.names.objectives}}],
            },
        ),
    }
    return child(profile, "apps/v1", "Deployment", name, COMPONENT, spec=spec)
