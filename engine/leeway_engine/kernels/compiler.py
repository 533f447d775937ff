"""Compiles the CPU kernels once for each machine, and keeps them in the user's cache."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("cpu.cpp")
ELEMENTS = {"bfloat16": "Bf16", "float32": "float", "float64": "double"}
"""The type in C++ for each of torch's that the kernels are written for."""
FLAGS = (
    "-O3",
    "-march=native",
    "-std=gnu++17",
    "-fopenmp",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-shared",
    "-fPIC",
)
COMPILERS = ("c++", "g++", "clang++")
LONGEST_S = 120.0


class CompileError(Exception):
    """There are no compiled kernels; the message says why."""


def compiled_library(dtype: str) -> Path:
    """Return the shared library for this type, compiling it if the cache has none; raises CompileError.

    Of several processes that want the same one, one compiles and the others wait for it.
    """
    compiler = _compiler()
    flags = (*FLAGS, f"-DLEEWAY_ELEMENT={ELEMENTS[dtype]}")
    library = _cache() / f"{dtype}-{_fingerprint(compiler, flags)}.so"
    if library.exists():
        return library
    try:
        library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with library.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile(compiler, flags, library)
    except OSError as error:
        raise CompileError(f"cannot write to {library.parent}: {error.strerror}; set XDG_CACHE_HOME") from error
    return library


def _compiler() -> str:
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        if found := shutil.which(name):
            return found
    raise CompileError(f"no C++ compiler on PATH, neither {' nor '.join((named,) if named else COMPILERS)}")


def _cache() -> Path:
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "leeway" / "kernels"


def _fingerprint(compiler: str, flags: tuple[str, ...]) -> str:
    """Name what the library hangs on, so that a shared home directory serves different machines."""
    parts = (SOURCE.read_text(), _run((compiler, "--version")), " ".join(flags), platform.machine(), _cpu_flags())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _cpu_flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _compile(compiler: str, flags: tuple[str, ...], library: Path) -> None:
    prefix = f"{library.name}-"
    for left in library.parent.glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=library.parent) as scratch:
        made = Path(scratch, library.name)
        _run((compiler, *flags, str(SOURCE), "-o", str(made)))
        made.rename(library)


def _run(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"{command[0]} took longer than {LONGEST_S:.0f} s") from error
    if done.returncode:
        first = next(iter(done.stderr.splitlines()), "it says nothing")
        raise CompileError(f"{command[0]} failed with exit code {done.returncode}: {first}")
    return done.stdout
