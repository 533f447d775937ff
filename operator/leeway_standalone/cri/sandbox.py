"""The live part of a pod sandbox: a directory with what the pod's containers share. There is no process to it.

`ns/` keeps namespaces alive as bind mounts, `shm` is the pod's /dev/shm, `etc/` its own files of /etc, `root` an empty
directory to build on. The file `ready` is made last: a sandbox is ready while it exists, so one half made is not.
"""

import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from leeway_standalone.cri.container import SHARED_NAMESPACES, explain
from leeway_standalone.cri.record import PODS
from leeway_standalone.linux import MountFlag, Namespace, mount, unmount, unshare

SHM_OPTIONS = "mode=1777,size=64m"  # as in containerd; an emptyDir of medium Memory at /dev/shm gives more
LOW_PORTS = ("net.ipv4.ip_unprivileged_port_start", "0")  # also as there: users other than root may bind port 80


def build_sandbox(
    sandbox: str, report: int, *, hostname: str, own_network: bool, sysctls: dict[str, str], files: dict[str, str]
) -> NoReturn:
    """In a fresh process: make the directory and the namespaces; failures are written to `report`."""
    try:
        pod = PODS / sandbox
        for name in ("ns", "shm", "etc", "root"):
            (pod / name).mkdir(parents=True)
        mount("shm", pod / "shm", "tmpfs", MountFlag.NOSUID | MountFlag.NODEV | MountFlag.NOEXEC, SHM_OPTIONS)
        kinds = {name: kind for name, kind in SHARED_NAMESPACES.items() if own_network or name == "ipc"}
        unshare(sum(kinds.values(), Namespace(0)))
        if own_network:
            socket.sethostname(hostname)
            sysctls = dict([LOW_PORTS]) | sysctls
        for name, value in sysctls.items():
            Path("/proc/sys", name.replace(".", "/")).write_text(value)
        for name in kinds:
            (pod / "ns" / name).touch()
            mount(f"/proc/self/ns/{name}", pod / "ns" / name, flags=MountFlag.BIND)
        for name, text in files.items():
            (pod / "etc" / name).write_text(text)
    except OSError as error:
        os.write(report, explain(error).encode())
    os._exit(0)


def set_ready(sandbox: str) -> None:
    """Mark the sandbox as complete."""
    (PODS / sandbox / "ready").touch()


def is_ready(sandbox: str) -> bool:
    """Whether the sandbox is complete and not stopped; after a restart of the node none is."""
    return (PODS / sandbox / "ready").exists()


def discard_sandbox(sandbox: str) -> None:
    """Free all that the sandbox holds; does nothing when that is done already."""
    pod = PODS / sandbox
    (pod / "ready").unlink(missing_ok=True)
    for path in (pod / "shm", *pod.glob("ns/*")):
        with suppress(OSError):  # not mounted
            unmount(path)
    with suppress(FileNotFoundError):
        shutil.rmtree(pod)


def resolv_conf(servers: list[str], searches: list[str], options: list[str]) -> str:
    """The resolver's configuration."""
    lines = [f"nameserver {server}" for server in servers]
    lines += [f"search {' '.join(searches)}"] if searches else []
    lines += [f"options {' '.join(options)}"] if options else []
    return "".join(f"{line}\n" for line in lines)
