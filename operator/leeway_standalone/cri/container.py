"""What happens in a container's own process between the fork and the program: namespaces, root, user, limits."""

import errno
import fcntl
import os
import signal
import termios
from pathlib import Path
from typing import NoReturn

from leeway_standalone import linux
from leeway_standalone.cri.record import ContainerSpec
from leeway_standalone.cri.rootfs import build_root
from leeway_standalone.cri.seccomp import default_filter
from leeway_standalone.linux import Namespace

CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
"""Names by number (capabilities(7))."""
SHARED_NAMESPACES = {"net": Namespace.NETWORK, "uts": Namespace.UTS, "ipc": Namespace.IPC}
"""What the containers of a pod share, by the name of the file that keeps it in the pod's directory."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def run_container(spec: ContainerSpec, report: int) -> NoReturn:
    """Turn this fresh process, the first of a PID namespace, into the container's; failures are written to `report`."""
    try:
        os.setsid()
        if spec.niceness:
            linux.rank_session(spec.niceness)
        for file in (spec.pod / "ns").iterdir():
            with file.open() as namespace:
                linux.setns(namespace.fileno(), SHARED_NAMESPACES[file.name])
        linux.unshare(Namespace.MOUNT)
        build_root(spec)
        _volunteer_for_oom_killer(spec.oom_score_adj)
        if (spec.uid, spec.gid) != (0, 0):
            _become(spec.uid, spec.gid)
        _execute(spec, spec.argv)
    except OSError as error:
        _fail(error, report)


def run_inside(spec: ContainerSpec, pid: int, argv: list[str], report: int, *, tty: bool = False) -> NoReturn:
    """Run a command in the running container whose first process is `pid`, wait for it, and end with its exit code."""
    try:
        _join(spec, pid)
        inner = os.fork()
        if inner == 0:
            _run_joined(spec, argv, report, tty=tty)
    except OSError as error:
        _fail(error, report)
    os.close(report)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(inner, signal.SIGKILL))
    os._exit(exit_code(os.waitpid(inner, 0)[1]))


def exit_code(wait_status: int) -> int:
    """The exit code as shells and Kubernetes count it: 128 and the signal's number for a killed process."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code


def explain(error: OSError) -> str:
    """The error in one line, with what it is about."""
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)


def _join(spec: ContainerSpec, pid: int) -> None:
    linux.die_with_parent(signal.SIGKILL)
    process = os.pidfd_open(pid)
    shared = [SHARED_NAMESPACES[file.name] for file in (spec.pod / "ns").iterdir()]
    user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    linux.setns(process, Namespace.MOUNT | Namespace.PID | sum(shared, Namespace(0)))
    if (spec.uid, spec.gid) != (0, 0):
        linux.setns(user, Namespace.USER)


def _run_joined(spec: ContainerSpec, argv: list[str], report: int, *, tty: bool) -> NoReturn:
    try:
        os.setsid()
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _execute(spec, argv)
    except OSError as error:
        _fail(error, report)


def _fail(error: OSError, report: int) -> NoReturn:
    os.write(report, f"{explain(error)}\n".encode())
    os._exit(NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE)


def _become(uid: int, gid: int) -> None:
    """Be `uid` and `gid` in a user namespace of one's own: the only way where a single user is mapped."""
    linux.unshare(Namespace.USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} 0 1")
    Path("/proc/self/gid_map").write_text(f"{gid} 0 1")


def _volunteer_for_oom_killer(score: int) -> None:
    """Let the machine's OOM killer prefer this process as Kubernetes asks; only root may ask for the opposite."""
    file = Path("/proc/self/oom_score_adj")
    if score > int(file.read_text()):
        file.write_text(str(score))


def _restore_signals() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _execute(spec: ContainerSpec, argv: list[str]) -> NoReturn:
    os.chdir(spec.working_dir)
    os.umask(0o022)
    _restore_signals()
    capabilities = frozenset(spec.capabilities)
    if spec.no_new_privileges:
        linux.forbid_new_privileges()
    if spec.filter_system_calls:
        linux.filter_system_calls(default_filter(capabilities))
    for number, name in enumerate(CAPABILITIES):
        if name not in capabilities:
            linux.drop_bounding_capability(number)
    linux.clear_ambient_capabilities()
    linux.set_capabilities(frozenset(CAPABILITIES.index(name) for name in capabilities))
    linux.die_with_parent(signal.SIGKILL)
    try:
        os.execvpe(argv[0], argv, spec.env)  # noqa: S606 - what the pod asks for
    except FileNotFoundError:
        where = "no such file or directory" if "/" in argv[0] else "executable file not found in $PATH"
        raise OSError(errno.ENOENT, f'exec: "{argv[0]}": {where}') from None
    except OSError as error:
        raise OSError(error.errno, f'exec: "{argv[0]}": {error.strerror}') from None
