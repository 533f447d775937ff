"""Run a command in a container, or connect to a port of a pod, with this process's own streams; for `kubectl exec`."""

import argparse
import fcntl
import os
import signal
import socket
import sys
import termios
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from leeway_standalone.cri.container import run_inside
from leeway_standalone.cri.keeper_client import KeeperError, ask_now
from leeway_standalone.cri.record import PODS, RUNNING, ContainerSpec, container_directory
from leeway_standalone.linux import Namespace, setns

CHUNK_BYTES = 64 * 1024


def main() -> NoReturn:
    """Exit with the command's exit code, or with an error on standard error."""
    parser = argparse.ArgumentParser(prog="leeway_standalone.cri.enter", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="directory of the runtime's records")
    parser.add_argument("--keeper", type=Path, required=True, help="unix socket of the keeper")
    actions = parser.add_subparsers(dest="action", required=True)
    execute = actions.add_parser("exec", help="run a command in a running container")
    execute.add_argument("container")
    execute.add_argument("--tty", action="store_true", help="standard input is the command's controlling terminal")
    execute.add_argument("command", nargs="+")
    connect = actions.add_parser("dial", help="connect to a port of a pod's own loopback address")
    connect.add_argument("sandbox")
    connect.add_argument("port", type=int)
    arguments = parser.parse_args()
    try:
        if arguments.action == "dial":
            dial(arguments.sandbox, arguments.port)
            sys.exit(0)
        run(arguments.root, arguments.keeper, arguments.container, arguments.command, tty=arguments.tty)
    except (OSError, KeeperError) as error:
        sys.exit(f"error: {error}")


def run(root: Path, keeper: Path, container: str, command: list[str], *, tty: bool) -> NoReturn:
    """Run a command in a running container and exit as it does."""
    state = ask_now(keeper, "states", container=container)["states"].get(container)
    if state is None or state["status"] != RUNNING:
        raise KeeperError(f"container {container} is not running")
    spec = ContainerSpec.read(container_directory(root, container))
    if tty:
        spec = replace(spec, env={"TERM": "xterm"} | spec.env)
        _give_up_terminal()
    run_inside(spec, state["pid"], command, report=os.dup(2), tty=tty)


def dial(sandbox: str, port: int) -> None:
    """Copy standard input to a connection to the pod's 127.0.0.1, and what comes back to standard output."""
    namespace = PODS / sandbox / "ns" / "net"
    if namespace.exists():  # else the pod uses the node's
        with namespace.open() as file:
            setns(file.fileno(), Namespace.NETWORK)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        threading.Thread(target=_send_input, args=(connection,), daemon=True).start()
        while data := connection.recv(CHUNK_BYTES):
            _write_all(1, data)


def _send_input(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side has closed the connection
        while data := os.read(0, CHUNK_BYTES):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _give_up_terminal() -> None:
    """Let go of the controlling terminal, so that the command, in a session of its own, can take it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with suppress(OSError):  # there was none
        fcntl.ioctl(0, termios.TIOCNOTTY)


if __name__ == "__main__":
    main()
