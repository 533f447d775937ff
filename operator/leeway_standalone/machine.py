"""What a standalone asks of the machine, checked before anything starts."""

import os
import sys
from pathlib import Path

from leeway_standalone.errors import StandaloneError

MEMORY_NEEDED_BYTES = 1_500_000_000
DISK_NEEDED_BYTES = 1_000_000_000
MOST_SOCKET_PATH_BYTES = 107
LONGEST_SOCKET = "node/kubelet/pod-resources/4294967295"
"""Of all Unix sockets below the state directory, the one with the longest path; the kubelet makes it."""


def check_machine(state_root: Path) -> None:
    """Raise when this machine cannot hold a standalone, with the figures."""
    if sys.platform != "linux":
        raise StandaloneError(
            "A standalone needs Linux: its processes live in Linux namespaces. On another system use a Linux virtual "
            "machine, or install Leeway's chart into a cluster."
        )
    check_path(state_root)
    check_memory(Path("/proc/meminfo").read_text())
    check_disk(state_root)


def check_path(state_root: Path) -> None:
    """Raise when Unix sockets below the state directory could not be opened."""
    most = MOST_SOCKET_PATH_BYTES - len(f"/{LONGEST_SOCKET}")
    length = len(os.fsencode(state_root))
    if length > most:
        raise StandaloneError(
            f"The state directory's path {state_root} has {length} bytes; Unix sockets below it can be opened only if "
            f"it has {most} at most. Name a shorter one with --state."
        )


def check_memory(meminfo: str) -> None:
    """Raise when /proc/meminfo shows too little memory to start with."""
    available_bytes = next(
        int(line.split()[1]) * 1024 for line in meminfo.splitlines() if line.startswith("MemAvailable:")
    )
    if available_bytes < MEMORY_NEEDED_BYTES:
        raise StandaloneError(
            f"Too little memory: {available_bytes / 1e9:.1f} GB available, and a standalone needs "
            f"{MEMORY_NEEDED_BYTES / 1e9:.1f} GB before its pods. Stop something that uses memory."
        )


def check_disk(state_root: Path) -> None:
    """Raise when the file system of the state directory is full."""
    existing = next(folder for folder in (state_root, *state_root.parents) if folder.exists())
    statistics = os.statvfs(existing)
    free_bytes = statistics.f_bavail * statistics.f_frsize
    if free_bytes < DISK_NEEDED_BYTES:
        raise StandaloneError(
            f"Disk full: {free_bytes / 1e9:.1f} GB free for {state_root}, and a standalone needs "
            f"{DISK_NEEDED_BYTES / 1e9:.0f} GB. Free some, or name another folder with --state."
        )
