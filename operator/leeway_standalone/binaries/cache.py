"""The user's cache: where it is, one writer at a time, and nothing half-done in it."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from leeway_standalone.binaries.catalog import BinaryError, build_key

_SCRATCH = ".scratch-"


def cache_root() -> Path:
    """Give the directory of the user's that caches are in, by the XDG rules."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "leeway"


def binaries_directory() -> Path:
    """Give the directory for what is built from the present pins; a change of them gives another."""
    return cache_root() / "binaries" / build_key()


@contextmanager
def locked(directory: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Be the only process that writes to this directory of the cache; what a killed one left half-done is removed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        raise BinaryError(
            f"cannot write to the cache {directory}: {error.strerror}. Set XDG_CACHE_HOME to a directory of yours."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in directory.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """Give a place to work in, on the same file system, so that the result can be renamed into `directory`."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=directory, ignore_cleanup_errors=True) as name:
        yield Path(name)
