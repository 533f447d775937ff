"""Keeps a profile's children as they should be."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from types import MappingProxyType

from leeway_operator.children import children, token_secret
from leeway_operator.children.parts import Object, is_child
from leeway_operator.children.secret import token_in
from leeway_operator.cluster import ApiError, Cluster
from leeway_operator.memory import Memory
from leeway_operator.names import path_to
from leeway_operator.profile import Profile

logger = logging.getLogger(__name__)

NO_LABELS: Mapping[str, str] = MappingProxyType({})

OPTIONAL_KIND = "PodMonitor"
"""Its CRD need not be installed."""


class Keeper:
    """Applies children, each whatever becomes of the others."""

    def __init__(self, cluster: Cluster, image: str, monitor_labels: Mapping[str, str] | None = NO_LABELS) -> None:
        """`image` is Leeway's own, for the pods of profiles that name none; `monitor_labels` are for PodMonitors, of
        which there are none if it is None.
        """
        self._cluster = cluster
        self._image = image
        self._monitor_labels = monitor_labels

    async def token(self, profile: Profile, memory: Memory, now_s: float) -> str:
        """Return the token of the knob endpoints, which is made once and then kept.

        Pods know a new one only when the kubelet has handed it on, in about a minute, and take no knobs until then. So
        a Secret that was deleted comes back with its token, and one of a profile before, whose pods may still run,
        passes on its own.
        """
        if memory.token and not memory.due(profile.generation, now_s):
            return memory.token
        path = path_to("Secret", profile.namespace, profile.names.token)
        found = await self._cluster.get(path)
        token = token_in(found)
        if found is None or not token or not is_child(profile, found):
            token = token or memory.token or secrets.token_urlsafe(32)
            await self._cluster.apply(path, token_secret(profile, token))
        memory.token = token
        return token

    async def keep(self, profile: Profile, memory: Memory, now_s: float) -> None:
        """Apply all children where that is due, and remember what was refused."""
        if not memory.due(profile.generation, now_s):
            return
        memory.children_due = False
        wanted = children(profile, self._image, self._monitor_labels)
        refusals = await asyncio.gather(*(self._apply(item) for item in wanted))
        memory.refusals = [refusal for refusal in refusals if refusal]
        memory.children_generation = profile.generation
        memory.children_applied_at_s = now_s

    async def _apply(self, item: Object) -> str | None:
        kind, metadata = item["kind"], item["metadata"]
        try:
            await self._cluster.apply(path_to(kind, metadata["namespace"], metadata["name"]), item)
        except ApiError as error:
            if kind == OPTIONAL_KIND and error.status == 404:
                return None
            logger.warning("%s/%s: cannot apply the %s: %s", metadata["namespace"], metadata["name"], kind, error)
            return f"{kind} {metadata['name']}: {error}"
        return None
