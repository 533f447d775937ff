"""The root file system of a container: the machine's programs read-only, and of the rest only what was asked for."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from leeway_standalone.cri.record import ContainerSpec, Mount
from leeway_standalone.linux import MountFlag, make_read_only, mount, pivot_root, unmount

PROGRAMS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix")
ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "group", "host.conf", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "os-release", "pki", "protocols", "services",
    "ssl", "timezone",
)  # fmt: skip
OWN_DIRECTORIES = {"etc": 0o755, "home": 0o755, "root": 0o700, "run": 0o755, "tmp": 0o1777, "var/tmp": 0o1777}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
GPU_DEVICES = "nvidia*"
LINKS = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
NODE = Path("/.node")
"""Where the node's file system hangs while a container's is built."""


def build_root(spec: ContainerSpec) -> None:
    """Give the calling process, in a new mount namespace, the container's root; nothing else stays visible."""
    sources = [os.path.realpath(item.source) for item in spec.mounts]
    mount("", "/", flags=MountFlag.REC | MountFlag.SLAVE)
    new_root = spec.pod / "root"
    mount("tmpfs", new_root, "tmpfs", MountFlag.NODEV, "mode=755")
    (new_root / NODE.name).mkdir()
    pivot_root(new_root, new_root / NODE.name)
    os.chdir("/")
    _directories()
    for name in PROGRAMS:
        _show(Path("/", name))
    for name in ETC:
        _show(Path("/etc", name))
    _name_user(spec.uid, spec.gid)
    for bind in spec.image_binds:
        _show(Path(bind))
    _kernel_file_systems()
    _devices(spec.pod)
    for file in _below(spec.pod / "etc").iterdir():
        _bind(file, Path("/etc") / file.name)
    for item, source in zip(spec.mounts, sources, strict=True):
        _volume(item, _below(Path(source)))
    _protect(spec)
    with suppress(OSError):  # its file system may be read-only: then the command finds no such directory
        Path(spec.working_dir).mkdir(parents=True, exist_ok=True)
    unmount(NODE)
    NODE.rmdir()
    if spec.read_only_root:
        make_read_only("/", recursive=False)


def _below(path: Path) -> Path:
    return NODE / path.relative_to("/")


def _directories() -> None:
    for path, mode in OWN_DIRECTORIES.items():
        directory = Path("/", path)
        directory.mkdir(parents=True)
        directory.chmod(mode)
    Path("/var/run").symlink_to("/run")


def _show(path: Path) -> None:
    """Show a path of the machine read-only; a symbolic link stays one."""
    source = _below(path)
    if source.is_symlink():
        path.symlink_to(source.readlink())
    elif source.exists():
        _bind(source, path)
        make_read_only(path, recursive=True)


def _name_user(uid: int, gid: int) -> None:
    """Give the user a name among the machine's, since programs ask for it."""
    users = _below(Path("/etc/passwd")).read_text()
    if f":x:{uid}:" not in users:
        users += f"container:x:{uid}:{gid}::/:/usr/sbin/nologin\n"
    Path("/etc/passwd").write_text(users)


def _bind(source: Path, target: Path) -> None:
    if not target.exists():
        if source.is_dir():
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    mount(source, target, flags=MountFlag.BIND | MountFlag.REC)


def _kernel_file_systems() -> None:
    safe = MountFlag.NOSUID | MountFlag.NODEV | MountFlag.NOEXEC
    Path("/proc").mkdir()
    mount("proc", "/proc", "proc", safe)
    Path("/sys").mkdir()
    mount("sysfs", "/sys", "sysfs", safe | MountFlag.RDONLY)


def _devices(pod: Path) -> None:
    """A small /dev; device nodes can only be lent from the machine, not made."""
    dev = Path("/dev")
    dev.mkdir()
    mount("tmpfs", dev, "tmpfs", MountFlag.NOSUID, "mode=755")
    lent = _below(dev)
    for node in [*(lent / name for name in DEVICES), *lent.glob(GPU_DEVICES)]:
        _bind(node, dev / node.name)
    (dev / "pts").mkdir()
    mount("devpts", dev / "pts", "devpts", MountFlag.NOSUID | MountFlag.NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    for name, target in LINKS.items():
        (dev / name).symlink_to(target)
    _bind(_below(pod / "shm"), dev / "shm")


def _volume(item: Mount, source: Path) -> None:
    if not source.exists():
        raise FileNotFoundError(errno.ENOENT, "the node has no such path to mount", item.source)
    target = Path(item.target)
    try:
        _bind(source, target)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        advice = "lies in a directory of the machine itself, where nothing new can be made; mount it elsewhere"
        raise OSError(errno.EROFS, f"mountPath {advice}", item.target) from None
    if not item.receives_mounts:
        mount("", target, flags=MountFlag.REC | MountFlag.PRIVATE)
    if item.read_only:
        make_read_only(target, recursive=item.recursive_read_only)


def _protect(spec: ContainerSpec) -> None:
    for path in map(Path, spec.masked_paths):
        if path.is_dir():
            mount("tmpfs", path, "tmpfs", MountFlag.RDONLY, "size=0,mode=000")
        elif path.exists():
            mount("/dev/null", path, flags=MountFlag.BIND)
    for path in map(Path, spec.read_only_paths):
        if path.exists():
            mount(path, path, flags=MountFlag.BIND | MountFlag.REC)
            make_read_only(path, recursive=True)
