"""The command line as a user runs it, and what standalones leave on a machine."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path


def leeway(
    *arguments: str, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run the command line as a user does."""
    return subprocess.run(
        (*prefix, sys.executable, "-m", "leeway_cli", *arguments),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def traces(root: Path) -> dict[str, list[str]]:
    """Find whatever a standalone in `root` has on the machine: processes and mounts."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if str(root) in command and folder.name != str(os.getpid()):
            processes.append(command)
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(root) in line]
    return {"processes": processes, "mounts": mounts}


def descendants(process: int) -> Iterator[int]:
    """Walk a process and all below it, also those in namespaces of their own."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return
    yield process
    for child in children:
        yield from descendants(int(child))


def start_ticks(process: int) -> str | None:
    """Return when a process began, as the kernel counts; None for one that has ended, buried or not."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else fields[18]


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
