"""The pods and containers that the kubelet asked for, in memory and on disk, so that a restarted service knows them."""

import shutil
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from google.protobuf.json_format import MessageToJson, Parse

from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.record import ContainerSpec, container_directory, write_whole
from leeway_standalone.network import next_address


@dataclass(frozen=True)
class Container:
    """A container as asked for: what the kubelet is told about it, and how it is started."""

    status: cri.ContainerStatus
    spec: ContainerSpec


class Catalog:
    """Sandboxes by id (their status) and containers by id. What became of containers is the keeper's knowledge."""

    def __init__(self, root: Path) -> None:
        """Read what is on record below `root`."""
        self._root = root
        self.sandboxes: dict[str, cri.PodSandboxStatus] = {}
        self.containers: dict[str, Container] = {}
        self._last_address: IPv4Address | None = None
        (root / "sandboxes").mkdir(parents=True, exist_ok=True)
        for file in root.glob("sandboxes/*.json"):
            self.sandboxes[file.stem] = Parse(file.read_text(), cri.PodSandboxStatus())
        for file in root.glob("containers/*/status.json"):
            status = Parse(file.read_text(), cri.ContainerStatus())
            self.containers[status.id] = Container(status, ContainerSpec.read(file.parent))

    def add_sandbox(self, status: cri.PodSandboxStatus, *, own_address: bool) -> None:
        """Keep a new sandbox, with an address of its own unless it uses the node's."""
        if own_address:
            taken = {IPv4Address(other.network.ip) for other in self.sandboxes.values() if other.network.ip}
            self._last_address = next_address(taken, self._last_address)
            status.network.ip = str(self._last_address)
        self.sandboxes[status.id] = status
        write_whole(self._sandbox_file(status.id), MessageToJson(status))

    def remove_sandbox(self, sandbox: str) -> None:
        """Forget a sandbox; its address is free."""
        self.sandboxes.pop(sandbox, None)
        self._sandbox_file(sandbox).unlink(missing_ok=True)

    def add_container(self, container: Container) -> None:
        """Keep a new container."""
        directory = container_directory(self._root, container.status.id)
        directory.mkdir(parents=True)
        container.spec.write(directory)
        self.containers[container.status.id] = container
        write_whole(directory / "status.json", MessageToJson(container.status))

    def remove_container(self, container: str) -> None:
        """Forget a container."""
        self.containers.pop(container, None)
        shutil.rmtree(container_directory(self._root, container), ignore_errors=True)

    def update_resources(self, container: str, resources: cri.LinuxContainerResources) -> None:
        """Keep changed limits of a container."""
        status = self.containers[container].status
        status.resources.linux.MergeFrom(resources)
        write_whole(container_directory(self._root, container) / "status.json", MessageToJson(status))

    def containers_of(self, sandbox: str) -> list[str]:
        """Ids of a sandbox's containers."""
        return [name for name, container in self.containers.items() if container.spec.sandbox_id == sandbox]

    def _sandbox_file(self, sandbox: str) -> Path:
        return self._root / "sandboxes" / f"{sandbox}.json"
