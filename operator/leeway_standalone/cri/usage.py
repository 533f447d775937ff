"""What a container uses, read from the processes of its PID namespace, as the /proc in its own root lists them."""

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
    written_bytes: int
    processes: int


def container_usage(pid: int) -> Usage:
    """Usage of the container whose first process is `pid`."""
    times = [cpu_ns(text) for text in _read_each(pid, "stat")]
    memory = sum(resident_bytes(text) for text in _read_each(pid, "statm"))
    return Usage(cpu_ns=sum(times), memory_bytes=memory, written_bytes=written_bytes(pid), processes=len(times))


def charged_bytes(pid: int, limit_bytes: int) -> int:
    """Memory that counts towards a limit: anonymous memory, and what was written to the container's own root.

    The cheap sum counts pages that forked processes share once for each, so one over the limit is counted exactly.
    """
    written = written_bytes(pid)
    resident = [resident_bytes(text) for text in _read_each(pid, "statm")]
    if len(resident) == 1 or sum(resident) + written <= limit_bytes:
        return sum(resident) + written
    return sum(proportional_bytes(text) for text in _read_each(pid, "smaps_rollup")) + written


def written_bytes(pid: int) -> int:
    """What lies in the container's own root, which is in memory."""
    root = os.statvfs(f"/proc/{pid}/root/")
    return (root.f_blocks - root.f_bfree) * root.f_frsize


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
    processes = f"/proc/{pid}/root/proc"
    for process in filter(str.isdigit, os.listdir(processes)):
        with suppress(OSError):  # it has just ended
            yield Path(processes, process, name).read_text()
