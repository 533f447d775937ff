"""A node with nothing but the CRI runtime, in namespaces like those of `leeway up`. Commands come on standard input."""

import ast
import contextlib
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from leeway_standalone import network
from leeway_standalone.linux import MountFlag, Namespace, die_with_parent, mount, unshare


def enter_namespaces() -> None:
    uid, gid = os.getuid(), os.getgid()
    unshare(Namespace.USER | Namespace.NETWORK | Namespace.MOUNT | Namespace.PID | Namespace.IPC | Namespace.UTS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    die_with_parent(signal.SIGKILL)
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    die_with_parent(signal.SIGKILL)
    mount("", "/", flags=MountFlag.REC | MountFlag.PRIVATE)
    mount("", "/", flags=MountFlag.REC | MountFlag.SHARED)
    mount("proc", "/proc", "proc")
    mount("tmpfs", "/run", "tmpfs")
    Path("/run/leeway").mkdir()
    network.prepare_node()


class Node:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (root / "images.json").write_text((root / "wanted-images.json").read_text())
        for name in ("keeper", "service"):
            self.start(name)

    def start(self, name: str) -> None:
        keeper, service = self.root / "keeper.sock", self.root / "cri.sock"
        arguments = {
            "keeper": [f"--socket={keeper}"],
            "service": [
                *(f"--socket={service}", f"--keeper={keeper}"),
                *(f"--images={self.root / 'images.json'}", f"--streaming={self.root / 'streaming.sock'}"),
            ],
        }[name]
        command = [sys.executable, "-m", f"leeway_standalone.cri.{name}", f"--root={self.root / 'records'}", *arguments]
        self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        path = keeper if name == "keeper" else service
        for _ in range(400):
            time.sleep(0.02)
            with socket.socket(socket.AF_UNIX) as connection:
                if connection.connect_ex(str(path)) == 0:
                    return
        sys.exit(f"{name} did not start")

    def restart(self, name: str) -> str:
        self.processes[name].kill()
        self.processes[name].wait()
        self.start(name)
        return "done"

    def enter(self, *arguments: str, text: str = "") -> tuple[int, str, str]:
        options = [f"--root={self.root / 'records'}", f"--keeper={self.root / 'keeper.sock'}"]
        command = [sys.executable, "-m", "leeway_standalone.cri.enter", *options, *arguments]
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=30)
        return result.returncode, result.stdout, result.stderr

    def enter_terminal(self, *arguments: str, text: str) -> tuple[int, str]:
        """As `enter exec --tty`, with a terminal that the text is typed into."""
        options = [f"--root={self.root / 'records'}", f"--keeper={self.root / 'keeper.sock'}"]
        command = [sys.executable, "-m", "leeway_standalone.cri.enter", *options, "exec", *arguments]
        process, terminal = pty.fork()
        if process == 0:
            os.execv(command[0], command)
        os.write(terminal, text.encode())
        said = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(terminal, 1000):
                said += data
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), said.decode()

    def mount(self, path: str) -> None:
        mount("tmpfs", path, "tmpfs")

    def left(self) -> tuple[int, int, int]:
        """Processes, mounts and network devices that are there now."""
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path("/proc").glob("[0-9]*/stat")]
        processes = len(states) - states.count("Z")  # nobody reaps what the keeper leaves behind here
        mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
        return processes, mounts, len(socket.if_nameindex())


def main() -> None:
    enter_namespaces()
    node = Node(Path(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        name, positional, named = ast.literal_eval(line)
        print(repr(getattr(node, name)(*positional, **named)), flush=True)


if __name__ == "__main__":
    main()
