"""The ConfigMaps that pods read."""

from leeway_core.knobs import Knobs
from leeway_core.objective import Objective
from pydantic import TypeAdapter

from leeway_operator.children import engine, gateway
from leeway_operator.children.parts import Object, child
from leeway_operator.pod_settings import pod_settings
from leeway_operator.profile import Profile

RECORD_KEY = "record"
_OBJECTIVES = TypeAdapter(tuple[Objective, ...])


def objectives_configuration(profile: Profile) -> Object:
    """Return the ConfigMap of the objectives, which gateways follow while they run."""
    text = _OBJECTIVES.dump_json(tuple(profile.spec.objectives), by_alias=True, exclude_none=True).decode()
    data = {gateway.OBJECTIVES_KEY: text}
    return child(profile, "v1", "ConfigMap", profile.names.objectives, gateway.COMPONENT, data=data)


def boot_configuration(profile: Profile, incumbent: Knobs, record: str) -> Object:
    """Return the ConfigMap with the knobs that each pod boots with, and the record that they are taken from."""
    replicas = profile.spec.replicas
    files = {
        f"{profile.names.pod(ordinal)}.json": pod_settings(incumbent, ordinal, replicas).model_dump_json(by_alias=True)
        for ordinal in range(replicas)
    }
    data = {RECORD_KEY: record, **files}
    return child(profile, "v1", "ConfigMap", profile.names.knobs, engine.COMPONENT, data=data)
