"""Usage of containers and pods as the CRI's messages."""

import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from leeway_standalone.cri import api_pb2 as cri
from leeway_standalone.cri.usage import Usage


class CpuRates:
    """CPU use between one look and the next, which the kubelet expects from the runtime."""

    def __init__(self) -> None:
        """Begin without a look."""
        self._last: dict[str, tuple[int, int, int]] = {}

    def nano_cores(self, name: str, now_ns: int, cpu_ns: int) -> int:
        """Cores used since the last look, in billionths; looks less than a second apart share an answer."""
        then_ns, then_cpu_ns, rate = self._last.get(name, (now_ns, cpu_ns, 0))
        if now_ns - then_ns >= 10**9:
            rate = max(0, cpu_ns - then_cpu_ns) * 10**9 // (now_ns - then_ns)
        elif name in self._last:
            return rate
        self._last[name] = (now_ns, cpu_ns, rate)
        return rate

    def forget_all_but(self, names: Collection[str]) -> None:
        """Forget what is gone."""
        self._last = {name: sample for name, sample in self._last.items() if name in names}


def cpu(name: str, cpu_ns: int, now_ns: int, rates: CpuRates) -> cri.CpuUsage:
    """CPU use of a container or pod."""
    rate = rates.nano_cores(name, now_ns, cpu_ns)
    return cri.CpuUsage(timestamp=now_ns, usage_core_nano_seconds=_value(cpu_ns), usage_nano_cores=_value(rate))


def memory(used: Sequence[Usage], limit_bytes: int, now_ns: int) -> cri.MemoryUsage:
    """Memory of one or several containers: what processes hold, and what was written to the containers' roots."""
    resident = sum(usage.memory_bytes for usage in used)
    total = resident + sum(usage.written_bytes for usage in used)
    available = _value(max(0, limit_bytes - total)) if limit_bytes else None
    return cri.MemoryUsage(
        timestamp=now_ns, working_set_bytes=_value(total), usage_bytes=_value(total), rss_bytes=_value(resident),
        available_bytes=available,
    )  # fmt: skip


def written(usage: Usage, mountpoint: Path, now_ns: int) -> cri.FilesystemUsage:
    """What a container wrote to its own root."""
    identifier = cri.FilesystemIdentifier(mountpoint=str(mountpoint))
    return cri.FilesystemUsage(timestamp=now_ns, fs_id=identifier, used_bytes=_value(usage.written_bytes))


def records_usage(root: Path) -> cri.FilesystemUsage:
    """The disk space of the runtime's own records: there are no image layers."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    used = 0
    for file in files:
        with suppress(OSError):
            used += os.stat(file).st_blocks * 512
    identifier = cri.FilesystemIdentifier(mountpoint=str(root))
    return cri.FilesystemUsage(
        timestamp=time.time_ns(), fs_id=identifier, used_bytes=_value(used), inodes_used=_value(len(files))
    )


def network(link: str, now_ns: int) -> cri.NetworkUsage | None:
    """Traffic of a pod, read at the node's end of its pair, where sent is received; None without such a pair."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()
        counters = next(line.split(":")[1].split() for line in lines if line.strip().startswith(f"{link}:"))
    except StopIteration:
        return None
    sent, sent_errors, received, received_errors = (_value(int(counters[index])) for index in (0, 2, 8, 10))
    interface = cri.NetworkInterfaceUsage(
        name="eth0", rx_bytes=received, rx_errors=received_errors, tx_bytes=sent, tx_errors=sent_errors
    )
    return cri.NetworkUsage(timestamp=now_ns, default_interface=interface, interfaces=[interface])


def _value(number: int) -> cri.UInt64Value:
    return cri.UInt64Value(value=number)
