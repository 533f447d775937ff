"""What the service knows and can ask, shared by the groups of calls that it answers."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.catalog import Catalog
from leeway_standalone.cri.images import Images
from leeway_standalone.cri.keeper_client import ask
from leeway_standalone.cri.record import EXITED, RUNNING
from leeway_standalone.cri.sandbox import is_ready
from leeway_standalone.cri.stats import CpuRates

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
State: TypeAlias = dict[str, Any]
STATES = {RUNNING: cri.CONTAINER_RUNNING, EXITED: cri.CONTAINER_EXITED}


class Runtime:
    """The catalog, the images and the ways to the keeper and to the streaming server."""

    def __init__(self, root: Path, images: Images, keeper: Path, streaming: Path) -> None:
        """Read the records below `root`; `keeper` and `streaming` are unix sockets."""
        self.root, self.images, self.streaming = root, images, streaming
        self.catalog = Catalog(root)
        self.rates = CpuRates()
        # Its one thread visits the network namespaces of pods.
        self.network_thread = ThreadPoolExecutor(1, "network")
        self._keeper = keeper

    async def keeper(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Ask the keeper."""
        return await ask(self._keeper, operation, **arguments)

    async def states(self) -> Mapping[str, State]:
        """States of all containers that were ever started, as the keeper has them."""
        states: Mapping[str, State] = (await self.keeper("states"))["states"]
        return states

    def sandbox(self, sandbox: str) -> cri.PodSandboxStatus:
        """A sandbox as the kubelet sees it now; LookupError if there is none."""
        if sandbox not in self.catalog.sandboxes:
            raise LookupError(f"pod sandbox {sandbox} not found")
        status = cri.PodSandboxStatus()
        status.CopyFrom(self.catalog.sandboxes[sandbox])
        status.state = cri.SANDBOX_READY if is_ready(sandbox) else cri.SANDBOX_NOTREADY
        return status

    def container(self, container: str, states: Mapping[str, State]) -> cri.ContainerStatus:
        """A container as the kubelet sees it now; LookupError if there is none."""
        if container not in self.catalog.containers:
            raise LookupError(f"container {container} not found")
        status = cri.ContainerStatus()
        status.CopyFrom(self.catalog.containers[container].status)
        if state := states.get(container):
            status.state = STATES[state["status"]]
            status.started_at, status.finished_at = state["started_at_ns"], state["finished_at_ns"]
            status.exit_code, status.reason, status.message = state["exit_code"], state["reason"], state["message"]
        return status

    async def remove_container(self, container: str) -> None:
        """Kill a container if need be, and forget it."""
        await self.keeper("stop", container=container, grace_s=0)
        await self.keeper("remove", container=container)
        self.catalog.remove_container(container)


def selected(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether labels have all that a selector asks for."""
    return all(labels.get(key) == value for key, value in selector.items())
