"""Filters for system calls: what `seccompProfile: RuntimeDefault` denies a container, and owners for the kubelet.

The default filter has what containerd's default profile matters for, as a list of what is denied instead of what is
allowed: calls that reach around namespaces or into the kernel. Each is allowed again to a container that was given the
capability it takes.
"""

import errno
import os
import struct

_NAMESPACE_FLAGS = 0x7E020000  # every CLONE_NEW* that clone can make

# By the capability that allows them: numbers for x86_64 and aarch64, None where an architecture has no such call.
_CALLS: dict[str, dict[str, tuple[int | None, int | None]]] = {
    "SYS_ADMIN": {
        "bpf": (321, 280), "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
        "lookup_dcookie": (212, 18), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
        "open_tree": (428, 428), "perf_event_open": (298, 241), "quotactl": (179, 60), "quotactl_fd": (443, 443),
        "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268), "umount2": (166, 39),
        "unshare": (272, 97),
    },
    "SYS_BOOT": {"kexec_file_load": (320, 294), "kexec_load": (246, 104), "reboot": (169, 142)},
    "SYS_MODULE": {"delete_module": (176, 106), "finit_module": (313, 273), "init_module": (175, 105)},
    "SYS_PACCT": {"acct": (163, 89)},
    "SYS_PTRACE": {"kcmp": (312, 272)},
    "SYS_RAWIO": {"ioperm": (173, None), "iopl": (172, None)},
    "SYS_TIME": {"clock_settime": (227, 112), "settimeofday": (164, 170)},
    "SYS_TTY_CONFIG": {"vhangup": (153, 58)},
    "SYSLOG": {"syslog": (103, 116)},
    "DAC_READ_SEARCH": {"open_by_handle_at": (304, 265)},
    "never": {
        "add_key": (248, 217), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
        "io_uring_setup": (425, 425), "keyctl": (250, 219), "nfsservctl": (180, 42), "pivot_root": (155, 41),
        "request_key": (249, 218), "swapoff": (168, 225), "swapon": (167, 224), "userfaultfd": (323, 282),
    },
}  # fmt: skip
_CHANGES_OF_OWNER = {"chown": (92, None), "fchown": (93, 55), "fchownat": (260, 54), "lchown": (94, None)}
_CLONE, _CLONE3 = (56, 220), 435
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_OR_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16
_X32_CALLS = 0x40000000


def denied_calls(capabilities: frozenset[str], machine: str) -> list[int]:
    """Numbers of the calls that a container with these capabilities may not make on this architecture."""
    column, _ = _ARCHITECTURES[machine]
    groups = [calls for capability, calls in _CALLS.items() if capability not in capabilities]
    numbers = (pair[column] for calls in groups for pair in calls.values())
    return sorted(number for number in numbers if number is not None)


def default_filter(capabilities: frozenset[str], machine: str = os.uname().machine) -> bytes:
    """Classic BPF that denies those calls with EPERM, and `clone3`, whose flags it cannot see, with ENOSYS."""
    column, _ = _ARCHITECTURES[machine]
    rules = [_answer(number, errno.EPERM) for number in denied_calls(capabilities, machine)]
    if "SYS_ADMIN" not in capabilities:
        rules += [
            _answer(_CLONE3, errno.ENOSYS),
            _instruction(_JUMP_EQUAL, _CLONE[column], 0, 3),
            _instruction(_LOAD, _FIRST_ARGUMENT_OFFSET),
            _instruction(_JUMP_BITS, _NAMESPACE_FLAGS, 0, 1),
            _instruction(_RETURN, _ERROR | errno.EPERM),
        ]
    return _program(rules, machine)


def ownership_filter(machine: str = os.uname().machine) -> bytes:
    """Classic BPF under which changes of a file's owner succeed without effect."""
    column, _ = _ARCHITECTURES[machine]
    numbers = (pair[column] for pair in _CHANGES_OF_OWNER.values())
    return _program([_answer(number, 0) for number in numbers if number is not None], machine)


def _program(rules: list[bytes], machine: str) -> bytes:
    """Rules behind a check that calls are the architecture's own, before a return that allows what is left."""
    _, architecture = _ARCHITECTURES[machine]
    deny = _instruction(_RETURN, _ERROR | errno.EPERM)
    head = [
        _instruction(_LOAD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, architecture, 1, 0),
        deny,
        _instruction(_LOAD, _NUMBER_OFFSET),
        _instruction(_JUMP_GREATER_OR_EQUAL, _X32_CALLS, 0, 1),
        deny,
    ]
    return b"".join([*head, *rules, _instruction(_RETURN, _ALLOW)])


def _answer(number: int, error: int) -> bytes:
    return _instruction(_JUMP_EQUAL, number, 0, 1) + _instruction(_RETURN, _ERROR | error)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
