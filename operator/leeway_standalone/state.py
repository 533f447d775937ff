"""The state directory: one folder holds all that a standalone keeps, and one lock says whether it runs."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self

from leeway_standalone.errors import StandaloneError

LOCK_TIMEOUT_S = 1.0
"""Long enough to outlast another process's look at the lock."""


@dataclass(frozen=True)
class Ports:
    """Ports on the host's loopback. 0 stands for a free one, chosen at the first start and kept from then on."""

    api: int = 7443
    gateway: int = 7080
    prometheus: int = 7090


@dataclass(frozen=True)
class Launch:
    """The running launcher, as it announces itself."""

    pid: int
    started_at_s: float
    ports: Ports

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        return cls(data["pid"], data["started_at_s"], Ports(**data["ports"]))

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))


def default_directory() -> Path:
    """`$LEEWAY_STATE`, else `leeway/standalone` below the XDG state folder."""
    if chosen := os.environ.get("LEEWAY_STATE"):
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / "leeway" / "standalone"


class StateDirectory:
    """Paths below the state directory. `node` is emptied at every start; the rest outlives `leeway down`."""

    def __init__(self, root: Path) -> None:
        """Refer to `root`, which `create` makes."""
        self.root = root.absolute()
        self.pki = self.root / "pki"
        self.etcd = self.root / "etcd"
        self.volumes = self.root / "volumes"
        self.logs = self.root / "logs"
        self.node = self.root / "node"
        self.kubeconfig = self.root / "kubeconfig"
        self._lock = self.root / "lock"
        self._launch = self.root / "launch.json"
        self._ports = self.root / "ports.json"
        self._ailing = self.node / "ailing.json"

    def create(self) -> None:
        """Make the folders, private to the user."""
        try:
            for folder in (self.root, self.pki, self.etcd, self.volumes, self.logs):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StandaloneError(
                f"Cannot make the state directory {self.root}: {error.strerror}. Name another with --state."
            ) from error

    @contextmanager
    def hold(self) -> Iterator[int]:
        """Hold the directory's lock and yield its descriptor; refused while it is held.

        Whoever inherits the descriptor holds the lock too.
        """
        with open(self._lock, "w") as lock:
            if not _lock_within(lock, LOCK_TIMEOUT_S):
                raise StandaloneError(
                    f"A standalone already runs in {self.root}. See `leeway status`, or stop it with `leeway down`."
                )
            try:
                yield lock.fileno()
            finally:
                self._launch.unlink(missing_ok=True)

    def announce(self, launch: Launch) -> None:
        """Tell who holds the lock, and remember the ports."""
        self._launch.write_text(launch.to_json())
        self._ports.write_text(json.dumps(asdict(launch.ports)))

    def running(self) -> Launch | None:
        """Return the launcher that holds the lock, or None. What a killed launcher left behind does not count."""
        with suppress(FileNotFoundError), open(self._lock) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                with suppress(FileNotFoundError, ValueError):
                    return Launch.from_json(self._launch.read_text())
        return None

    def remembered_ports(self) -> Ports | None:
        """Return the ports of the last start, so that kubeconfigs and bookmarks stay true."""
        try:
            return Ports(**json.loads(self._ports.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def tell_ailing(self, components: Mapping[str, str]) -> None:
        """Tell which components do not run as they should: words by name."""
        new = self._ailing.with_suffix(".new")
        new.write_text(json.dumps(dict(components)))
        new.replace(self._ailing)

    def ailing(self) -> dict[str, str]:
        """Return what was told last since the start."""
        try:
            told: dict[str, str] = json.loads(self._ailing.read_text())
        except FileNotFoundError:
            return {}
        return told

    def empty_node(self) -> None:
        """Forget what belonged to the processes of an earlier start: pods' folders, records of containers, logs."""
        shutil.rmtree(self.node, ignore_errors=True)
        self.node.mkdir(mode=0o700)

    def purge(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)
        if self.root.exists():
            raise StandaloneError(f"Some files below {self.root} could not be removed. Remove that folder by hand.")

    def wait_until_stopped(self, timeout_s: float) -> bool:
        """Wait for the lock to be free."""
        deadline = time.monotonic() + timeout_s
        while self.running() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def _lock_within(lock: IO[str], timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.05)
        else:
            return True
