"""The ConfigMaps that pods read."""

from leeway_core.objective import Objective, digest
from leeway_core.record import Record
from pydantic import TypeAdapter

from leeway_operator.children import engine, gateway
from leeway_operator.children.parts import Object, child
from leeway_operator.pod_settings import pod_settings
from leeway_operator.profile import Profile

RECORD_KEY = "record"
_OBJECTIVES = TypeAdapter(tuple[Objective, ...])


def objectives_configuration(profile: Profile) -> Object:
    """Return the ConfigMap of the objectives, which gateways follow while they run."""
    data = {gateway.OBJECTIVES_KEY: _objectives(profile).decode()}
    return child(profile, "v1", "ConfigMap", profile.names.objectives, gateway.COMPONENT, data=data)


def objectives_digest(profile: Profile) -> str:
    """Return by which digest gateways tell that they judge by the profile's objectives."""
    return digest(_objectives(profile))


def boot_configuration(profile: Profile, record: Record) -> Object:
    """Return the ConfigMap with the knobs that each pod boots with, and the record that they are taken from."""
    replicas = profile.spec.replicas
    boots = {
        profile.names.pod(ordinal): pod_settings(record.incumbent, record.policies, ordinal, replicas)
        for ordinal in range(replicas)
    }
    files = {f"{pod}.json": knobs.model_dump_json(by_alias=True) for pod, knobs in boots.items()}
    data = {RECORD_KEY: record.model_dump_json(by_alias=True), **files}
    return child(profile, "v1", "ConfigMap", profile.names.knobs, engine.COMPONENT, data=data)


def _objectives(profile: Profile) -> bytes:
    return _OBJECTIVES.dump_json(tuple(profile.spec.objectives), by_alias=True, exclude_none=True)
