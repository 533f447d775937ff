"""The engine pods."""

from leeway_operator.children.parts import Object, child, container, pod_template, probe, selector, service
from leeway_operator.names import ENGINE_PORT, KNOBS_PORT
from leeway_operator.profile import Profile

COMPONENT = "engine"
MODELS_FOLDER = "/models"
TOKEN_FOLDER = "/etc/leeway/token"  # noqa: S105 (a path)
KNOBS_FOLDER = "/etc/leeway/knobs"
SCRATCH_FOLDER = "/var/tmp"  # noqa: S108 (the container's own; torch wants one)
TOKEN_KEY = "token"  # noqa: S105 (a name)
LOADING_S = 1800
"""How long a pod may take to load its model."""


def engine_children(profile: Profile, image: str) -> list[Object]:
    """Return the engine's StatefulSet and what it needs."""
    name = profile.names.engine
    return [
        child(profile, "v1", "ServiceAccount", name, COMPONENT, automountServiceAccountToken=False),
        service(profile, name, COMPONENT, ENGINE_PORT, "http", clusterIP="None"),
        _stateful_set(profile, image),
    ]


def _stateful_set(profile: Profile, image: str) -> Object:
    name, engine = profile.names.engine, profile.spec.engine
    volumes: list[Object] = [
        {"name": "token", "secret": {"secretName": profile.names.token}},
        {"name": "knobs", "configMap": {"name": profile.names.knobs}},
        {"name": "scratch", "emptyDir": {}},
    ]
    mounts: list[Object] = [
        {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
        {"name": "knobs", "mountPath": KNOBS_FOLDER, "readOnly": True},
        {"name": "scratch", "mountPath": SCRATCH_FOLDER},
    ]
    if engine.model_claim:
        volumes.append({"name": "models", "persistentVolumeClaim": {"claimName": engine.model_claim, "readOnly": True}})
        mounts.append({"name": "models", "mountPath": MODELS_FOLDER, "readOnly": True})
    main = container(
        "engine",
        engine.image or image,
        engine.resources,
        {"http": ENGINE_PORT, "knobs": KNOBS_PORT},
        args=[
            "engine",
            f"--model={profile.spec.model}",
            f"--served-model={profile.name}",
            f"--knobs-token-file={TOKEN_FOLDER}/{TOKEN_KEY}",
            f"--knobs-file={KNOBS_FOLDER}/$(POD_NAME).json",
            f"--max-token-budget={engine.ceilings.token_budget}",
            f"--max-running-sequences={engine.ceilings.running_sequences}",
            f"--port={ENGINE_PORT}",
            f"--knobs-port={KNOBS_PORT}",
            *(engine.args or ()),
        ],
        env=[
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "TMPDIR", "value": SCRATCH_FOLDER},
        ],
        volumeMounts=mounts,
        startupProbe=probe("/readyz", "http", 1, LOADING_S),
        livenessProbe=probe("/healthz", "http", 10, 3, 5),
        readinessProbe=probe("/readyz", "http", 2, 1, 5),
    )
    spec = {
        "replicas": profile.spec.replicas,
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": selector(profile, COMPONENT)},
        "template": pod_template(
            profile,
            COMPONENT,
            ENGINE_PORT,
            {
                "serviceAccountName": name,
                "automountServiceAccountToken": False,
                "containers": [main],
                "volumes": volumes,
            },
        ),
    }
    return child(profile, "apps/v1", "StatefulSet", name, COMPONENT, spec=spec)
