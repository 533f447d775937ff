"""`nft`, which kube-proxy runs: the distribution's package, installed as root, or unpacked into the user's cache."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from leeway_standalone.binaries.cache import cache_root, locked, scratch
from leeway_standalone.binaries.catalog import BinaryError
from leeway_standalone.binaries.progress import Report

_SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_WRAPPER = """\
#!/bin/sh
LD_LIBRARY_PATH={libraries} exec {program} "$@"
"""


def find_nft() -> Path | None:
    """Find `nft` on PATH, in the directories of system programs, or unpacked in the cache."""
    searched = os.pathsep.join([os.environ.get("PATH", ""), *_SYSTEM_DIRECTORIES])
    found = shutil.which("nft", path=searched)
    unpacked = _directory() / "unpacked" / "nft"
    return Path(found).absolute() if found else unpacked if unpacked.exists() else None


def provide_nft(report: Report) -> Path:
    """Install the package when root, else unpack it and its libraries into the cache."""
    if not all(shutil.which(tool) for tool in ("apt-get", "apt-cache", "dpkg", "dpkg-query")):
        raise BinaryError("kube-proxy needs the program `nft`: install your distribution's package `nftables`.")
    if os.geteuid() == 0:
        report.step("nft", "installing the package nftables")
        settings = {"DEBIAN_FRONTEND": "noninteractive"}
        _run(["apt-get", "update"], settings)
        _run(
            ["apt-get", "-o", "DPkg::Lock::Timeout=120", "install", "-y", "--no-install-recommends", "nftables"],
            settings,
        )
        report.finish("nft", "installed the package nftables")
    else:
        with locked(_directory(), waiting=lambda: report.step("nft", "waiting for another process that unpacks it")):
            if find_nft() is None:
                report.step("nft", "unpacking the package nftables")
                _unpack(_directory())
                report.finish("nft", "unpacked the package nftables")
    found = find_nft()
    if found is None:
        raise BinaryError("the package nftables was installed, but no program `nft` is there: look at its files.")
    return found


def _directory() -> Path:
    return cache_root() / "nftables"


def _unpack(directory: Path) -> None:
    """Unpack nftables and those of its libraries that the system lacks, with apt's state in a directory of ours."""
    with scratch(directory) as place:
        lists, archives, root = place / "lists", place / "archives", place / "unpacked"
        for path in (lists / "partial", archives / "partial", root):
            path.mkdir(parents=True)
        configuration = place / "apt.conf"
        configuration.write_text(
            f'Dir::State::lists "{lists}";\nDir::Cache "{archives}";\nDebug::NoLocking "true";\n'
            'APT::Sandbox::User "";\n'
        )
        settings = {"APT_CONFIG": str(configuration)}
        _run(["apt-get", "update"], settings)
        only_depends = [
            f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
        ]
        listing = _run(["apt-cache", "depends", "--recurse", *only_depends, "nftables"], settings)
        needed = {line for line in listing.splitlines() if line[:1].isalnum()}
        states = _run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n"], {})
        installed = {line.split()[0] for line in states.splitlines() if line.endswith(" installed")}
        _run(["apt-get", "download", *sorted(needed - installed)], settings, cwd=place)
        for package in place.glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(root)], {})
        _wrap(root, at=directory / "unpacked")
        root.replace(directory / "unpacked")


def _wrap(root: Path, at: Path) -> None:
    """Write a program that runs the unpacked `nft` with its libraries, once `root` is renamed to `at`."""
    program = next(path for path in (root / "usr/sbin/nft", root / "sbin/nft") if path.exists())
    libraries = {path.parent for path in root.rglob("*.so.*")}
    moved = [str(at / path.relative_to(root)) for path in sorted(libraries)]
    wrapper = root / "nft"
    wrapper.write_text(
        _WRAPPER.format(
            libraries=shlex.quote(":".join(moved)), program=shlex.quote(str(at / program.relative_to(root)))
        )
    )
    wrapper.chmod(0o755)


def _run(command: list[str], settings: dict[str, str], cwd: Path | None = None) -> str:
    environment = os.environ | {"LC_ALL": "C"} | settings
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        why = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise BinaryError(
            "kube-proxy needs the program `nft`: install the package nftables, "
            f"since `{' '.join(command)}` failed:\n{why}"
        )
    return done.stdout
