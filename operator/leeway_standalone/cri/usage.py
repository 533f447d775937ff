"""What a container uses, read from the processes of its PID namespace as its own /proc lists them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """CPU time since the container's start, and memory and processes now."""

    cpu_ns: int
    memory_bytes: int
    file_bytes: int
    """Written to the container's own root, which lies in memory."""
    processes: int


def container_usage(pid: int) -> Usage:
    """Usage of the container whose first process is `pid`."""
    statistics = list(_read_each(pid, "stat"))
    memory = sum(resident_bytes(text) for text in _read_each(pid, "statm"))
    root = os.statvfs(f"/proc/{pid}/root/")
    return Usage(
        cpu_ns=sum(cpu_ns(text) for text in statistics),
        memory_bytes=memory,
        file_bytes=(root.f_blocks - root.f_bfree) * root.f_frsize,
        processes=len(statistics),
    )


def charged_bytes(pid: int, limit_bytes: int) -> int:
    """Memory that counts towards a limit: anonymous memory, and files in the container's own root.

    The cheap sum counts pages shared by forked processes several times, so one over the limit is counted exactly.
    """
    root = os.statvfs(f"/proc/{pid}/root/")
    files = (root.f_blocks - root.f_bfree) * root.f_frsize
    sums = [resident_bytes(text) for text in _read_each(pid, "statm")]
    if len(sums) == 1 or sum(sums) + files <= limit_bytes:
        return sum(sums) + files
    return sum(proportional_bytes(text) for text in _read_each(pid, "smaps_rollup")) + files


def resident_bytes(statm: str) -> int:
    """Resident anonymous memory of one process, from /proc/PID/statm: resident minus shared pages."""
    _, resident, shared, *_ = statm.split()
    return (int(resident) - int(shared)) * PAGE_BYTES


def proportional_bytes(smaps_rollup: str) -> int:
    """Anonymous memory of one process with each page divided among those who share it, from smaps_rollup."""
    return sum(int(line.split()[1]) * 1024 for line in smaps_rollup.splitlines() if line.startswith("Pss_Anon:"))


def cpu_ns(stat: str) -> int:
    """CPU time of a process and of the children it has waited for, from /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_NS


def _read_each(pid: int, name: str) -> Iterator[str]:
    with suppress(OSError):
        for directory in Path(f"/proc/{pid}/root/proc").glob("[0-9]*"):
            with suppress(OSError):  # the process has just ended
                yield (directory / name).read_text()
