"""Builds programs from the pinned Go module, one after the other, into the user's cache."""

import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from leeway_standalone.binaries.cache import binaries_directory, locked, scratch
from leeway_standalone.binaries.catalog import KUBERNETES, MODULE, Binary, BinaryError, build_flags, pinned_version
from leeway_standalone.binaries.progress import Report
from leeway_standalone.binaries.toolchain import Go, provide_go
from leeway_standalone.linux import die_with_parent

GB = 10**9
LINK_MEMORY_GB = 2.0
COLD_DISK_GB = 0.5
"""Disk that a program takes on average: its share of fetched modules, compiled packages, and itself."""
WARM_DISK_GB = 0.1
"""The same when the modules are there already."""

_TAIL_LINES = 15
_ELSEWHERE = "or name a directory with the programs in KUBEBUILDER_ASSETS"
_REASONS = (
    (r"no space left on device|disk quota exceeded", f"the disk is full: free some space, {_ELSEWHERE}"),
    (r"signal: killed|cannot allocate memory", f"memory ran out (a link takes 2 GB): free some, {_ELSEWHERE}"),
    (
        r"GOPROXY|dial tcp|proxyconnect|no such host|i/o timeout|TLS handshake|connection re(fused|set)",
        f"no Go module proxy could be reached: name one that this machine reaches in GOPROXY, {_ELSEWHERE}",
    ),
)


def build(binaries: Sequence[Binary], report: Report) -> None:
    """Build what the cache lacks of these programs."""
    directory = binaries_directory()

    def waiting() -> None:
        report.step(binaries[0].name, "waiting for another process that builds")

    with locked(directory, waiting):
        missing = [binary for binary in binaries if not (directory / binary.name).exists()]
        if not missing:
            return
        go = provide_go(report)
        _require_memory()
        _require_disk(go, directory, len(missing))
        for binary in missing:
            with scratch(directory) as place:
                _build_one(go, binary, place, report).replace(directory / binary.name)
            report.finish(binary.name, "built")


def _build_one(go: Go, binary: Binary, place: Path, report: Report) -> Path:
    flags = [*build_flags(), *([f"-tags={binary.tags}"] if binary.tags else [])]
    modules = packages = 0

    def fetched(line: str) -> None:
        nonlocal modules
        if not line.startswith("go: downloading "):
            return
        modules += 1
        report.step(binary.name, "fetching modules", modules)

    report.step(binary.name, "looking at its packages")
    stale = "{{if .Stale}}{{.ImportPath}}{{end}}"
    total = len(_go(go, binary, place, ["list", *flags, "-deps", "-f", stale, binary.package], fetched).split())

    def show() -> None:
        report.step(binary.name, "compiling" if packages < total - 1 else "linking", min(packages, total), total)

    def compiled(_line: str) -> None:
        nonlocal packages
        packages += 1
        show()

    show()
    result = place / binary.name
    _go(go, binary, place, ["build", *flags, "-v", "-o", str(result), binary.package], compiled)
    return result


def _go(go: Go, binary: Binary, place: Path, arguments: list[str], on_line: Callable[[str], None]) -> str:
    """Run a `go` command, hand on each line of its stderr as it comes, and give its stdout."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    output = place / "stdout"
    with (
        output.open("w") as stdout,
        subprocess.Popen(
            [str(go.executable), *arguments],
            cwd=MODULE,
            env=go.environment(place),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGKILL),  # noqa: PLW1509 - one system call, no lock
        ) as process,
    ):
        assert process.stderr is not None
        try:
            for line in process.stderr:
                tail.append(line)
                on_line(line)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise BinaryError(f"{binary.name} could not be built: {_explain(list(tail), process.returncode)}")
    return output.read_text()


def _explain(lines: list[str], code: int) -> str:
    for pattern, reason in _REASONS:
        for line in lines:
            if re.search(pattern, line):
                return f"{reason}. Go said: {line.strip()}"
    return f"go exited with {code}. Its last lines:\n{''.join(lines)}"


def _require_memory() -> None:
    meminfo = Path("/proc/meminfo").read_text()
    available_gb = int(meminfo.partition("MemAvailable:")[2].split()[0]) * 1024 / GB
    if available_gb < LINK_MEMORY_GB:
        raise BinaryError(
            f"building Kubernetes takes {LINK_MEMORY_GB:g} GB of memory, and {available_gb:.1f} GB are available: "
            f"free some, {_ELSEWHERE}."
        )


def _require_disk(go: Go, directory: Path, count: int) -> None:
    warm = (go.module_cache / f"{KUBERNETES}@v{pinned_version(KUBERNETES)}").exists()
    needed_gb = count * (WARM_DISK_GB if warm else COLD_DISK_GB)
    for place in (go.module_cache, go.build_cache, directory):
        existing = next(path for path in (place, *place.parents) if path.exists())
        free_gb = shutil.disk_usage(existing).free / GB
        if free_gb < needed_gb:
            raise BinaryError(
                f"building takes about {needed_gb:.1f} GB of disk, and {place} has {free_gb:.1f} GB free: "
                f"free some, or move Go's caches with GOMODCACHE and GOCACHE, {_ELSEWHERE}."
            )
