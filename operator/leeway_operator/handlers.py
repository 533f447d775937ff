"""The thin edge to kopf: it watches, and what it sees makes profiles due. Nothing is handled on the object itself, so
there is neither a finalizer nor an annotation on it.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import kopf

from leeway_operator.cluster import Cluster
from leeway_operator.crd import GROUP, PLURAL, VERSION
from leeway_operator.keeper import Keeper
from leeway_operator.names import PROFILE_LABEL
from leeway_operator.pod_client import PodClient
from leeway_operator.reconciler import Reconciler
from leeway_operator.records import Records
from leeway_operator.rounds import Rounds
from leeway_operator.tuner_client import TunerClient

CHILDREN = (
    ("v1", "pods"),
    ("v1", "services"),
    ("v1", "configmaps"),
    ("apps/v1", "statefulsets"),
    ("apps/v1", "deployments"),
)
"""The kinds that are watched. Of the others, changes are found when children are applied again."""


def registry(
    log_in: Callable[[], kopf.ConnectionInfo], image: str, tuner_url: str, monitor_labels: Mapping[str, str] | None
) -> kopf.OperatorRegistry:
    """Return the handlers of the operator."""
    handlers = kopf.OperatorRegistry()
    watcher = _Watcher(log_in, image, tuner_url, monitor_labels)
    kopf.on.login(registry=handlers, errors=kopf.ErrorsMode.PERMANENT)(lambda **_: log_in())
    kopf.on.startup(registry=handlers, errors=kopf.ErrorsMode.PERMANENT)(watcher.start)
    kopf.on.cleanup(registry=handlers)(watcher.stop)
    kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)(watcher.profile)
    for version, plural in CHILDREN:
        labels: dict[str, Any] = {PROFILE_LABEL: kopf.PRESENT}
        kopf.on.event(version, plural, labels=labels, registry=handlers)(watcher.child)
    return handlers


class _Watcher:
    """Hands events on to the rounds."""

    def __init__(
        self,
        log_in: Callable[[], kopf.ConnectionInfo],
        image: str,
        tuner_url: str,
        monitor_labels: Mapping[str, str] | None,
    ) -> None:
        self._log_in = log_in
        self._image = image
        self._tuner_url = tuner_url
        self._monitor_labels = monitor_labels
        self._stack = AsyncExitStack()

    async def start(self, **_: Any) -> None:
        cluster = await self._stack.enter_async_context(Cluster.session(self._log_in))
        session = await self._stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        reconciler = Reconciler(
            cluster=cluster,
            keeper=Keeper(cluster, self._image, self._monitor_labels),
            records=Records(cluster),
            pods=PodClient(session),
            tuner=TunerClient(session, self._tuner_url),
        )
        self._rounds = Rounds(reconciler)
        self._stack.push_async_callback(self._rounds.stop)

    async def stop(self, **_: Any) -> None:
        await self._stack.aclose()

    async def profile(self, *, event: kopf.RawEvent, **_: Any) -> None:
        if event["type"] == "DELETED":
            self._rounds.forget(event["object"])
        else:
            self._rounds.see(event["object"])

    async def child(self, *, namespace: str | None, labels: kopf.Labels, resource: kopf.Resource, **_: Any) -> None:
        self._rounds.disturb(namespace or "", labels[PROFILE_LABEL], child=resource.plural != "pods")
