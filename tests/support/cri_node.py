"""A CRI runtime in namespaces of its own, driven as the kubelet would."""

import ast
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import leeway_standalone
from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri import api_pb2_grpc

IMAGES = {
    "leeway": {
        "entrypoint": ["/bin/echo", "entry"],
        "binds": [str(Path(leeway_standalone.__file__).parent)],
        "env": {"FLAVOUR": "own"},
        "version": "1.2.3",
    }
}
# What the kubelet asks for by default.
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def interpreter_for(user: int) -> str | None:
    """A Python of this version that `user` may execute, with the packages of this one by PYTHONPATH.

    None if there is none, or if the user may not reach this code.
    """
    if user != os.getuid() and not _reachable(Path(__file__).resolve().parent):
        return None
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        if candidate and (user == os.getuid() or _reachable(Path(candidate).resolve())):
            return candidate
    return None


def _reachable(path: Path) -> bool:
    return all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents))


class Node:
    """The runtime and the ways to ask it."""

    def __init__(self, root: Path, process: "subprocess.Popen[str]", channel: grpc.Channel) -> None:
        self.root, self._process = root, process
        self.runtime = api_pb2_grpc.RuntimeServiceStub(channel)
        self.images = api_pb2_grpc.ImageServiceStub(channel)

    def inside(self, name: str, *positional: str, **named: str) -> Any:
        """Call a method of the node inside."""
        self._process.stdin.write(repr((name, positional, named)) + "\n")
        self._process.stdin.flush()
        return ast.literal_eval(self._process.stdout.readline())

    def run_pod(self, name: str = "pod", change: Callable[[cri.PodSandboxConfig], object] = id) -> "Pod":
        """Run a sandbox."""
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=name, uid=name, namespace="default"),
            hostname=name,
            labels={"app": name},
            log_directory=str(self.root / "logs" / name),
            dns_config=cri.DNSConfig(servers=["10.96.0.10"], searches=["svc.cluster.local"], options=["ndots:5"]),
        )
        config.linux.security_context.namespace_options.pid = cri.CONTAINER
        change(config)
        response = self.runtime.RunPodSandbox(cri.RunPodSandboxRequest(config=config))
        return Pod(self, response.pod_sandbox_id, config)


class Pod:
    """A sandbox."""

    def __init__(self, node: Node, name: str, config: cri.PodSandboxConfig) -> None:
        self.node, self.id, self.config = node, name, config

    @property
    def status(self) -> cri.PodSandboxStatus:
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=self.id)
        return self.node.runtime.PodSandboxStatus(request).status

    def stop(self) -> None:
        self.node.runtime.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=self.id))

    def remove(self) -> None:
        self.node.runtime.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=self.id))

    def create(
        self,
        *command: str,
        image: str = "debian:12",
        args: tuple[str, ...] = (),
        change: Callable[[cri.ContainerConfig], object] = id,
    ) -> "Container":
        name = f"c{time.monotonic_ns()}"
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=name), image=cri.ImageSpec(image=image), command=command, args=args,
            labels={"container": name}, log_path=f"{name}.log",
        )  # fmt: skip
        security = config.linux.security_context
        security.namespace_options.pid = cri.CONTAINER
        security.masked_paths.extend(MASKED)
        security.readonly_paths.extend(READ_ONLY)
        change(config)
        request = cri.CreateContainerRequest(pod_sandbox_id=self.id, config=config, sandbox_config=self.config)
        return Container(self.node, self.node.runtime.CreateContainer(request).container_id)

    def start(self, *command: str, **options: Any) -> "Container":
        container = self.create(*command, **options)
        container.start()
        return container

    def output(self, *command: str, **options: Any) -> str:
        """What a container prints on standard output and standard error until it ends."""
        container = self.start(*command, **options)
        container.wait()
        return container.text()


class Container:
    """A container."""

    def __init__(self, node: Node, name: str) -> None:
        self.node, self.id = node, name

    @property
    def status(self) -> cri.ContainerStatus:
        return self.node.runtime.ContainerStatus(cri.ContainerStatusRequest(container_id=self.id)).status

    def start(self) -> None:
        self.node.runtime.StartContainer(cri.StartContainerRequest(container_id=self.id))

    def stop(self, grace_s: int = 0) -> None:
        self.node.runtime.StopContainer(cri.StopContainerRequest(container_id=self.id, timeout=grace_s))

    def remove(self) -> None:
        self.node.runtime.RemoveContainer(cri.RemoveContainerRequest(container_id=self.id))

    def execute(self, *command: str, timeout_s: int = 0) -> cri.ExecSyncResponse:
        request = cri.ExecSyncRequest(container_id=self.id, cmd=command, timeout=timeout_s)
        return self.node.runtime.ExecSync(request)

    def wait(self) -> cri.ContainerStatus:
        return eventually(lambda: self.status if self.status.state == cri.CONTAINER_EXITED else None)

    def entries(self) -> list[list[str]]:
        """Time, stream, tag and content of each log entry."""
        return [line.split(" ", 3) for line in Path(self.status.log_path).read_text().splitlines()]

    def text(self) -> str:
        return "\n".join(content for *_, content in self.entries())

    def wait_for(self, text: str) -> None:
        eventually(lambda: text in self.text())


def eventually(look: Callable[[], Any], within_s: float = 20) -> Any:
    """What `look` says once that is true."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come to pass")


@contextmanager
def running_node(root: Path, user: int, interpreter: str) -> Iterator[Node]:
    """A node that runs as `user`, in a directory of that user's; nothing of it is left in the end."""
    (root / "wanted-images.json").write_text(json.dumps(IMAGES))
    os.chown(root, user, user)
    paths = [
        str(Path(leeway_standalone.__file__).parent.parent),
        *(path for path in sys.path if "site-packages" in path),
    ]
    process = subprocess.Popen(
        [interpreter, str(Path(__file__).with_name("cri_inside.py")), str(root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=user, group=user, extra_groups=[],
        env=os.environ | {"PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    with process, grpc.insecure_channel(f"unix:{root / 'cri.sock'}") as channel:
        assert process.stdout.readline() == "ready\n"
        yield Node(root, process, channel)
        process.stdin.close()
        process.wait(10)
