"""Which programs there are, and their versions: read from `go.mod`, which pins them."""

import hashlib
import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from leeway_standalone.errors import StandaloneError

HERE = Path(__file__).parent
MODULE = HERE / "module"
KUBERNETES = "k8s.io/kubernetes"
HELM = "helm.sh/helm/v4"
PROMETHEUS = "github.com/prometheus/prometheus"


class BinaryError(StandaloneError):
    """A program is missing and cannot be had; the message says what to do."""


@dataclass(frozen=True)
class Binary:
    """A program, the Go package it is built from, and the arguments that make it tell its version."""

    name: str
    package: str
    module: str | None
    """The Go module that pins the version; none for a program of Leeway's own."""
    asks_version: tuple[str, ...] = ("--version",)
    tags: str = ""

    @property
    def version(self) -> str | None:
        """The pinned version, as the program itself writes it but for a leading `v`."""
        return pinned_version(self.module) if self.module else None


def _kubernetes(name: str, *asks_version: str) -> Binary:
    return Binary(name, f"{KUBERNETES}/cmd/{name}", KUBERNETES, asks_version or ("--version",))


def _prometheus(name: str) -> Binary:
    return Binary(name, f"{PROMETHEUS}/cmd/{name}", PROMETHEUS, tags="remove_all_sd,enable_kubernetes_sd")


BINARIES = {
    binary.name: binary
    for binary in (
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        Binary("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
        _kubernetes("kubelet"),
        _kubernetes("kube-proxy"),
        _kubernetes("kubectl", "version", "--client"),
        Binary("coredns", "leeway-kubernetes/coredns", "github.com/coredns/coredns", ("-version",)),
        Binary("leeway-streaming", "leeway-kubernetes/streaming", None),
        Binary("helm", f"{HELM}/cmd/helm", HELM, ("version", "--short")),
        _prometheus("prometheus"),
        _prometheus("promtool"),
    )
}
"""In the order in which they share most of what the ones before them compiled."""

ALL = (*BINARIES, "nft")
"""All programs that a standalone needs."""


@cache
def _go_mod() -> str:
    return (MODULE / "go.mod").read_text()


def pinned_version(module: str) -> str:
    """Read the version of a module from `go.mod`, without its `v`."""
    match = re.search(rf"^\s*{re.escape(module)} v(\S+)", _go_mod(), re.MULTILINE)
    if match is None:
        raise LookupError(f"go.mod does not require {module}")
    version = match[1]
    if module == PROMETHEUS:  # as a Go module, 3.16.0 is numbered v0.316.0
        major_minor, patch = version.removeprefix("0.").split(".")
        return f"{major_minor[:-2]}.{int(major_minor[-2:])}.{patch}"
    return version


def required_go() -> tuple[int, ...]:
    """Read from `go.mod` which Go it needs."""
    match = re.search(r"^go (\S+)$", _go_mod(), re.MULTILINE)
    if match is None:
        raise LookupError("go.mod does not say which Go it needs")
    return tuple(int(part) for part in match[1].split("."))


def build_flags() -> list[str]:
    """Give the flags of `go build` that all programs share; a variable that a program lacks is ignored."""
    kubernetes = pinned_version(KUBERNETES)
    major, minor, _ = kubernetes.split(".")
    variables = {
        "k8s.io/component-base/version.gitVersion": f"v{kubernetes}",
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        f"{HELM}/internal/version.version": f"v{pinned_version(HELM)}",
        "github.com/prometheus/common/version.Version": pinned_version(PROMETHEUS),
    }
    linker = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in variables.items())])
    return ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={linker}"]


def build_key() -> str:
    """Name what the programs are built from: pins, Leeway's own Go, flags and machine."""
    digest = hashlib.sha256()
    for path in sorted(path for path in MODULE.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(MODULE)}\0".encode() + path.read_bytes() + b"\0")
    tags = [binary.tags for binary in BINARIES.values()]
    digest.update(repr((build_flags(), tags, platform.machine())).encode())
    return digest.hexdigest()[:16]
