"""What is on record about containers: how to start one, what became of it, and where that is kept."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RUNNING, EXITED = "running", "exited"
PODS = Path("/run/leeway/pods")
"""One directory for each live pod sandbox: its namespaces, its /dev/shm and its files for /etc."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A file or directory of the node that shows up in a container."""

    source: str
    target: str
    read_only: bool = False
    recursive_read_only: bool = False
    receives_mounts: bool = False
    """HostToContainer propagation: what the node mounts below `source` later shows up too."""


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """All that is needed to start a container, and to run further commands in it."""

    id: str
    sandbox_id: str
    argv: list[str]
    env: dict[str, str]
    working_dir: str = "/"
    uid: int = 0
    gid: int = 0
    capabilities: list[str] = field(default_factory=list)
    no_new_privileges: bool = False
    filter_system_calls: bool = False
    read_only_root: bool = False
    masked_paths: list[str] = field(default_factory=list)
    read_only_paths: list[str] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    image_binds: list[str] = field(default_factory=list)
    """Directories of the machine that make up the image's environment, at the same paths, read-only."""
    log_path: str = ""
    niceness: int = 0
    memory_limit_bytes: int = 0
    oom_score_adj: int = 0
    stop_signal: int = 15

    @property
    def pod(self) -> Path:
        """The directory of the live sandbox."""
        return PODS / self.sandbox_id

    @classmethod
    def read(cls, directory: Path) -> "ContainerSpec":
        """Read what `write` wrote."""
        data: dict[str, Any] = json.loads((directory / "spec.json").read_text())
        return cls(**data | {"mounts": [Mount(**mount) for mount in data["mounts"]]})

    def write(self, directory: Path) -> None:
        """Keep this in the container's directory."""
        write_whole(directory / "spec.json", json.dumps(asdict(self)))


@dataclass(frozen=True, kw_only=True)
class ContainerState:
    """What became of a started container; times in ns since the epoch."""

    status: str
    started_at_ns: int
    pid: int = 0
    finished_at_ns: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""


def container_directory(root: Path, container_id: str) -> Path:
    """Where a container's spec, status and state are kept."""
    return root / "containers" / container_id


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, even after a crash, finds the old or the new content and nothing between."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    os.replace(draft, path)
