"""Finds programs, and has those built or installed that are nowhere."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from leeway_standalone.binaries.building import build
from leeway_standalone.binaries.cache import binaries_directory
from leeway_standalone.binaries.catalog import ALL, BINARIES, Binary, BinaryError
from leeway_standalone.binaries.nft import find_nft, provide_nft
from leeway_standalone.binaries.progress import Report, report_on_stderr


def find(name: str) -> Path | None:
    """Find a program without building or installing anything."""
    if name == "nft":
        return find_nft()
    if name not in BINARIES:
        raise BinaryError(f"no program of a standalone is called {name!r}: there are {', '.join(ALL)}.")
    binary = BINARIES[name]
    return _in_assets(binary) or _in_cache(binary) or _on_path(binary)


def ensure(names: Iterable[str], *, progress: Report | None = None) -> dict[str, Path]:
    """Give the path of each program; what is nowhere is built or installed first (by default, seen on stderr)."""
    if progress is None:
        with report_on_stderr() as report:
            return ensure(names, progress=report)
    found = {name: find(name) for name in names}
    for name, path in found.items():
        if path is not None and name in BINARIES and path == _in_assets(BINARIES[name]):
            progress.finish(name, f"{ask_version(BINARIES[name], path) or 'unknown version'} from KUBEBUILDER_ASSETS")
    missing = [BINARIES[name] for name, path in found.items() if path is None and name in BINARIES]
    if missing:
        build(missing, progress)
    if "nft" in found and found["nft"] is None:
        found["nft"] = provide_nft(progress)
    return {name: path or binaries_directory() / name for name, path in found.items()}


def ask_version(binary: Binary, path: Path) -> str | None:
    """Run a program to learn its version; none if it does not tell."""
    try:
        command = [str(path), *binary.asks_version]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\d+\.\d+\.\d+[\w.-]*", done.stdout + done.stderr)
    return match[0] if match else None


def _in_assets(binary: Binary) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return None
    if not Path(assets).is_dir():
        raise BinaryError(f"KUBEBUILDER_ASSETS is {assets!r}, which is no directory: correct it or unset it.")
    path = Path(assets).absolute() / binary.name
    return path if os.access(path, os.X_OK) else None


def _in_cache(binary: Binary) -> Path | None:
    path = binaries_directory() / binary.name
    return path if path.exists() else None


def _on_path(binary: Binary) -> Path | None:
    found = shutil.which(binary.name) if binary.version else None
    return Path(found).absolute() if found and ask_version(binary, Path(found)) == binary.version else None
