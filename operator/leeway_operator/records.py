"""The record of a profile's knobs, kept in the ConfigMap that its pods boot from."""

from leeway_core.record import Record
from pydantic import ValidationError

from leeway_operator.children import boot_configuration
from leeway_operator.children.configuration import RECORD_KEY
from leeway_operator.children.parts import is_child
from leeway_operator.cluster import Cluster
from leeway_operator.knobs import first_record
from leeway_operator.memory import Memory
from leeway_operator.names import path_to
from leeway_operator.profile import Profile


class Records:
    """Reads and writes records."""

    def __init__(self, cluster: Cluster) -> None:
        """Keep them in this cluster."""
        self._cluster = cluster

    async def read(self, profile: Profile, memory: Memory, now_s: float) -> Record:
        """Return the record; what others have made of it is overruled by the incumbent as it was last written.

        A trial of which nothing is remembered has gone on unwatched, so it ends. A lost record begins anew with the
        starting knobs, and so does a profile that was made anew: what another of its name has left is not its own.
        """
        found = await self._cluster.get(path_to("ConfigMap", profile.namespace, profile.names.knobs))
        memory.boot_data = (found.get("data") or {}) if found and is_child(profile, found) else {}
        record = _parse(memory.boot_data.get(RECORD_KEY, ""))
        if memory.record is not None and record != memory.record:
            return memory.record.back(now_s)
        if memory.record is None and record is not None and record.candidate is not None:
            return record.back(now_s)
        return record or first_record(profile.spec, now_s)

    async def write(self, profile: Profile, memory: Memory, record: Record) -> None:
        """Put a record, and the knobs that pods boot with, where they outlive the operator."""
        wanted = boot_configuration(profile, record)
        if not wanted["data"].items() <= memory.boot_data.items():
            memory.record = None  # until it is known whether this call has an effect
            path = path_to("ConfigMap", profile.namespace, profile.names.knobs)
            await self._cluster.apply(path, wanted)
            memory.boot_data = wanted["data"]
        memory.record = record


def _parse(text: str) -> Record | None:
    try:
        return Record.model_validate_json(text)
    except ValidationError:
        return None
