"""The launcher's own namespaces: user, network, mount, PID, IPC and UTS, all gone with the process that made them."""

import errno
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from leeway_standalone import linux
from leeway_standalone.errors import StandaloneError
from leeway_standalone.linux import MountFlag, Namespace

FORBIDDEN = """This machine does not let you make user namespaces ({reason}). To allow it, as root:
  - Debian, older kernels:  sysctl kernel.unprivileged_userns_clone=1
  - Ubuntu 24.04 and newer: sysctl kernel.apparmor_restrict_unprivileged_userns=0
  - where the count is 0:   sysctl user.max_user_namespaces=15000
Inside a container, start the container with a seccomp profile that allows unshare and mount."""

_PRIVATE_FOLDERS = ("/run", "/tmp", "/var/lib")  # noqa: S108 - they become file systems of the standalone's own


def enter() -> None:
    """Fork into new namespaces, and return in the child, which is PID 1 and root of them.

    The original process waits and exits as the child does. The child dies with it, and with the child, by the
    kernel's rule for PID 1, every process inside.
    """
    user, group = os.geteuid(), os.getegid()
    launcher = os.getppid()
    try:
        linux.unshare(
            Namespace.USER | Namespace.NETWORK | Namespace.MOUNT | Namespace.PID | Namespace.IPC | Namespace.UTS
        )
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    except OSError as error:
        if error.errno in {errno.EPERM, errno.ENOSPC, errno.EACCES, errno.EUSERS, errno.EINVAL}:
            raise StandaloneError(FORBIDDEN.format(reason=error.strerror)) from error
        raise
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(1)
    alive_read, alive_write = os.pipe()
    child = os.fork()
    if child:
        os.close(alive_read)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    linux.die_with_parent(signal.SIGKILL)
    os.close(alive_write)
    os.set_blocking(alive_read, False)
    try:
        parent_is_gone = os.read(alive_read, 1) == b""
    except BlockingIOError:
        parent_is_gone = False
    if parent_is_gone:
        os._exit(1)
    os.close(alive_read)


def furnish(kept: Sequence[Path]) -> None:
    """Give the mount namespace its own /proc, /run, /tmp and /var/lib, in which `kept` paths stay visible."""
    # Nothing comes in from the machine or goes out to it; a container may ask for what is mounted here later.
    linux.mount("none", "/", flags=MountFlag.REC | MountFlag.PRIVATE)
    linux.mount("none", "/", flags=MountFlag.REC | MountFlag.SHARED)
    linux.mount("proc", "/proc", "proc", MountFlag.NOSUID | MountFlag.NODEV | MountFlag.NOEXEC)
    covered = {
        path: os.open(path, os.O_PATH)
        for path in kept
        if path.exists() and any(path.is_relative_to(folder) for folder in _PRIVATE_FOLDERS)
    }
    for folder in _PRIVATE_FOLDERS:
        linux.mount("tmpfs", folder, "tmpfs", MountFlag.NOSUID | MountFlag.NODEV, "mode=0755")
    for path, descriptor in covered.items():
        _make_place(path, is_folder=os.path.isdir(f"/proc/self/fd/{descriptor}"))
        linux.mount(f"/proc/self/fd/{descriptor}", path, flags=MountFlag.BIND | MountFlag.REC)
        os.close(descriptor)


def _make_place(path: Path, *, is_folder: bool) -> None:
    if is_folder:
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
