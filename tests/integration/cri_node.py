"""A node with nothing but the CRI runtime, in namespaces like those of `leeway up`. Commands come on standard input."""

import os
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


def main() -> None:
    root = Path(sys.argv[1])
    enter_namespaces()
    keeper, service = root / "keeper.sock", root / "cri.sock"
    commands = {
        "keeper": ["keeper", f"--socket={keeper}"],
        "service": [
            *("service", f"--keeper={keeper}", f"--socket={service}"),
            *(f"--images={root / 'images.json'}", f"--streaming={root / 'streaming.sock'}"),
        ],
    }
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(name: str) -> None:
        module, *arguments = commands[name]
        command = [sys.executable, "-m", f"leeway_standalone.cri.{module}", f"--root={root / 'records'}", *arguments]
        processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        path = keeper if name == "keeper" else service
        for _ in range(200):
            time.sleep(0.05)
            with socket.socket(socket.AF_UNIX) as connection:
                if connection.connect_ex(str(path)) == 0:
                    return
        sys.exit(f"{name} did not start")

    start("keeper")
    start("service")
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *rest = line.split()
        if verb == "restart":
            processes[rest[0]].kill()
            processes[rest[0]].wait()
            start(rest[0])
            print("done", flush=True)
        elif verb == "mounts":
            print(len(Path("/proc/self/mountinfo").read_text().splitlines()), flush=True)
        elif verb == "processes":
            print(sum(1 for name in os.listdir("/proc") if name.isdigit()), flush=True)
        elif verb == "run":
            result = subprocess.run(rest, capture_output=True, text=True, check=False)
            print(repr((result.returncode, result.stdout, result.stderr)), flush=True)


if __name__ == "__main__":
    main()
