"""The few system calls that Python lacks: namespaces, mounts, capabilities. Each raises OSError with its errno."""

import ctypes
import os
import time
from enum import IntFlag
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
AUTOGROUP_TRIES, AUTOGROUP_RETRY_S = 100, 0.02
MNT_DETACH = 2
SECCOMP_MODE_FILTER = 2
SYS_MOUNT_SETATTR = 442  # the same number on every architecture
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 0x1


class Namespace(IntFlag):
    """Kinds of namespace, for `unshare` and `setns` (namespaces(7))."""

    MOUNT = 0x00020000
    UTS = 0x04000000
    IPC = 0x08000000
    USER = 0x10000000
    PID = 0x20000000
    NETWORK = 0x40000000


class MountFlag(IntFlag):
    """Flags of `mount` (mount(2))."""

    NONE = 0
    RDONLY = 0x1
    NOSUID = 0x2
    NODEV = 0x4
    NOEXEC = 0x8
    REMOUNT = 0x20
    BIND = 0x1000
    MOVE = 0x2000
    REC = 0x4000
    PRIVATE = 0x40000
    SLAVE = 0x80000
    SHARED = 0x100000


def _check(result: int, call: str, *about: object) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}", " ".join(str(part) for part in about) or None)


def unshare(namespaces: Namespace) -> None:
    """Move the calling (single-threaded) process into new namespaces; PID takes effect for its next child."""
    _check(_libc.unshare(int(namespaces)), "unshare", namespaces)


def setns(descriptor: int, kind: Namespace) -> None:
    """Join the namespace behind an open `/proc/PID/ns/*` file or a bind mount of one."""
    _check(_libc.setns(descriptor, int(kind)), "setns", kind)


def mount(
    source: str | Path, target: str | Path, kind: str = "", flags: MountFlag = MountFlag.NONE, options: str = ""
) -> None:
    """Mount, bind, move or remount, as the flags say."""
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode() or None)
    result = _libc.mount(*arguments, ctypes.c_ulong(int(flags)), options.encode() or None)
    _check(result, "mount", source, target)


def unmount(target: str | Path) -> None:
    """Detach a mount at once; it is freed when its last user is gone."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), "umount", target)


def make_read_only(target: str | Path, *, recursive: bool) -> None:
    """Make a mount read-only, with all mounts below it when `recursive`; its other flags stay as they are."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    arguments = (AT_FDCWD, os.fsencode(target), AT_RECURSIVE if recursive else 0, ctypes.byref(attributes))
    _check(_libc.syscall(SYS_MOUNT_SETATTR, *arguments, ctypes.sizeof(attributes)), "mount_setattr", target)


def pivot_root(new_root: str | Path, put_old: str | Path) -> None:
    """Make `new_root` the root of this mount namespace and hang the old one below `put_old`."""
    _check(_libc.pivot_root(os.fsencode(new_root), os.fsencode(put_old)), "pivot_root", new_root)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal when the parent *thread* ends; cleared by a change of credentials."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl PR_SET_PDEATHSIG")


def rank_session(niceness: int) -> None:
    """Weigh this process's session (autogroup, sched(7)) against others as `nice` weighs processes in one; lower only.

    Where the kernel has no such groups, the process itself is weighed, and with it all that it starts.
    """
    for _ in range(AUTOGROUP_TRIES):
        try:
            Path("/proc/self/autogroup").write_text(str(niceness))
        except BlockingIOError:  # without root, the kernel takes ten of these a second
            time.sleep(AUTOGROUP_RETRY_S)
        except FileNotFoundError:
            os.nice(niceness)
            return
        else:
            return


def forbid_new_privileges() -> None:
    """Make set-uid bits and file capabilities powerless for this process and its children."""
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl PR_SET_NO_NEW_PRIVS")


def drop_bounding_capability(number: int) -> None:
    """Take a capability (by number) away from this process and all that it will execute."""
    _check(_libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), "prctl PR_CAPBSET_DROP", number)


def clear_ambient_capabilities() -> None:
    """Let no capability pass to the next program without its being asked for."""
    _check(_libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl PR_CAP_AMBIENT_CLEAR_ALL")


def set_capabilities(numbers: frozenset[int]) -> None:
    """Set effective and permitted capabilities to exactly `numbers`, inheritable to none (capset(2), version 3)."""
    mask = sum(1 << number for number in numbers)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")


def filter_system_calls(program: bytes) -> None:
    """Install a seccomp filter, given as a program of classic BPF (8 bytes an instruction)."""
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    whole = Program(len(program) // 8, ctypes.addressof(code))
    _check(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0), "prctl PR_SET_SECCOMP")
