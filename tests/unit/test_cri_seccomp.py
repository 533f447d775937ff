"""The default filter denies what reaches around namespaces, and nothing that programs live on."""

import errno
import struct

import pytest
from leeway_standalone.cri.container import CAPABILITIES
from leeway_standalone.cri.seccomp import default_filter, denied_calls, ownership_filter

X86_64, AARCH64 = 0xC000003E, 0xC00000B7
NEW_USER, THREAD = 0x10000000, 0x00010F00
ALLOW = 0x7FFF0000


def answer(program: bytes, number: int, architecture: int, first_argument: int = 0) -> int | None:
    """Run the program as the kernel does: None is allowed, else the error number."""
    data = struct.pack("=IIQQ", number, architecture, 0, first_argument)
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        if code == 0x06:
            return None if value == ALLOW else value & 0xFFFF
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += if_true if holds else if_false


NONE: frozenset[str] = frozenset()
DANGEROUS = {  # name: numbers on x86_64 and aarch64
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "setns": (308, 268), "unshare": (272, 97),
    "bpf": (321, 280), "keyctl": (250, 219), "init_module": (175, 105), "kexec_load": (246, 104), "reboot": (169, 142),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
}  # fmt: skip
ORDINARY = {"read": (0, 63), "execve": (59, 221), "mmap": (9, 222), "futex": (202, 98), "prctl": (157, 167)}


@pytest.mark.parametrize(("column", "machine", "architecture"), [(0, "x86_64", X86_64), (1, "aarch64", AARCH64)])
def test_dangerous_calls_are_denied_and_ordinary_ones_allowed(column: int, machine: str, architecture: int) -> None:
    program = default_filter(NONE, machine)
    assert {answer(program, numbers[column], architecture) for numbers in DANGEROUS.values()} == {errno.EPERM}
    assert {answer(program, numbers[column], architecture) for numbers in ORDINARY.values()} == {None}


def test_threads_may_be_made_but_no_namespaces() -> None:
    program = default_filter(NONE, "x86_64")
    assert answer(program, 56, X86_64, THREAD) is None
    assert answer(program, 56, X86_64, NEW_USER) == errno.EPERM
    assert answer(program, 435, X86_64) == errno.ENOSYS  # so that the C library falls back to clone


def test_other_ways_into_the_kernel_are_closed() -> None:
    program = default_filter(NONE, "x86_64")
    assert answer(program, 0, 0x40000003) == errno.EPERM  # 32-bit calls
    assert answer(program, 0x40000000, X86_64) == errno.EPERM  # x32 calls


def test_capability_allows_its_calls_again() -> None:
    program = default_filter(frozenset({"SYS_ADMIN"}), "x86_64")
    assert answer(program, 165, X86_64) is None
    assert answer(program, 56, X86_64, NEW_USER) is None
    assert answer(program, 246, X86_64) == errno.EPERM
    assert denied_calls(frozenset(CAPABILITIES), "x86_64")


@pytest.mark.parametrize(
    ("numbers", "machine", "architecture"), [((92, 93, 94, 260), "x86_64", X86_64), ((54, 55), "aarch64", AARCH64)]
)
def test_owners_change_in_appearance_alone(numbers: tuple[int, ...], machine: str, architecture: int) -> None:
    program = ownership_filter(machine)
    assert {answer(program, number, architecture) for number in numbers} == {0}
    assert answer(program, 1, architecture) is None
