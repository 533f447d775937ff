"""Runs a command as another user, with folders in view that lie in a home closed to that user.

usage (as root): python unprivileged.py UID FOLDER... -- COMMAND...

In a mount namespace of its own each closed ancestor of a folder is covered by an open, empty one, in which the folders
are bound again. Nothing is copied, and the machine's own folders keep their modes.
"""

import os
import sys
from pathlib import Path

from leeway_standalone import linux
from leeway_standalone.linux import MountFlag, Namespace


def closed_ancestor(folder: Path) -> Path | None:
    """Return the topmost ancestor that others may not pass."""
    above = [path for path in reversed(folder.parents) if not path.stat().st_mode & 0o001]
    return above[0] if above else None


def main() -> None:
    """Open the view, drop to the user, become the command."""
    split = sys.argv.index("--")
    user, folders, command = int(sys.argv[1]), [Path(name) for name in sys.argv[2:split]], sys.argv[split + 1 :]
    linux.unshare(Namespace.MOUNT)
    linux.mount("none", "/", flags=MountFlag.REC | MountFlag.PRIVATE)
    hidden = {folder: ancestor for folder in folders if (ancestor := closed_ancestor(folder))}
    opened = {folder: os.open(folder, os.O_PATH) for folder in hidden}
    for ancestor in set(hidden.values()):
        linux.mount("tmpfs", ancestor, "tmpfs", options="mode=0755")
    for folder, descriptor in opened.items():
        folder.mkdir(parents=True, exist_ok=True)
        linux.mount(f"/proc/self/fd/{descriptor}", folder, flags=MountFlag.BIND | MountFlag.REC)
        os.close(descriptor)
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
