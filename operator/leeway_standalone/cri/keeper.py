"""The keeper: starts containers by forking itself, logs what they write, and knows what became of them.

It is small and has one thread, so that a fork is quick and safe. The service asks it over a unix socket: a connection
carries one request and one reply, each a line of JSON. Containers live no longer than the keeper: the kernel kills them
when it dies, and the next keeper reports them as exited with 137, so that the kubelet restarts them.
"""

import argparse
import json
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

from leeway_standalone.cri.child import Child
from leeway_standalone.cri.execution import Execution
from leeway_standalone.cri.loop import Loop
from leeway_standalone.cri.record import (
    EXITED,
    RUNNING,
    ContainerSpec,
    ContainerState,
    container_directory,
    write_whole,
)
from leeway_standalone.cri.running import RunningContainer
from leeway_standalone.cri.sandbox import build_sandbox

KILLED: dict[str, Any] = {
    "exit_code": 137, "reason": "Error", "message": "ended together with the container runtime's keeper",
}  # fmt: skip
REPLY_TIMEOUT_S = 5.0
Reply: TypeAlias = Callable[[dict[str, Any]], None]


class Keeper:
    """All containers of this node, and the operations on them; each answers once, at once or later."""

    def __init__(self, root: Path, loop: Loop) -> None:
        """Go on from what is on record: what ran then has ended."""
        self._root, self._loop = root, loop
        self._states: dict[str, ContainerState] = {}
        self._running: dict[str, RunningContainer] = {}
        (root / "containers").mkdir(parents=True, exist_ok=True)
        for file in root.glob("containers/*/state.json"):
            state = ContainerState(**json.loads(file.read_text()))
            if state.status == RUNNING:
                state = replace(state, status=EXITED, pid=0, finished_at_ns=time.time_ns(), **KILLED)
            self._keep(file.parent.name, state)

    def sandbox(self, reply: Reply, **options: Any) -> None:
        """Make what the containers of a pod share."""
        error = bytearray()
        action = lambda pipes: build_sandbox(report=pipes["report"], **options)  # noqa: E731 - one expression
        Child(self._loop, action, {"report": error.extend}, lambda _: reply({"error": error.decode()} if error else {}))

    def start(self, reply: Reply, *, container: str) -> None:
        """Start a container that the service has written a spec for, once."""
        if container in self._states or container in self._running:
            reply({"error": f"container {container} was started before; create another"})
            return
        spec = ContainerSpec.read(container_directory(self._root, container))
        self._running[container] = RunningContainer(
            self._loop,
            spec,
            on_state=lambda state: self._keep(container, state),
            on_start=lambda error: reply({"error": error} if error else {}),
        )

    def stop(self, reply: Reply, *, container: str, grace_s: float) -> None:
        """Stop a container; the reply comes when it is gone."""
        if running := self._running.get(container):
            running.stop(grace_s, lambda: reply({}))
        else:
            reply({})

    def remove(self, reply: Reply, *, container: str) -> None:
        """Forget a container that does not run."""
        self._states.pop(container, None)
        reply({})

    def states(self, reply: Reply, *, container: str = "") -> None:
        """Tell the states of all started containers, or of one."""
        chosen = [container] if container in self._states else [] if container else list(self._states)
        reply({"states": {name: asdict(self._states[name]) for name in chosen}})

    def reopen_log(self, reply: Reply, *, container: str) -> None:
        """Go on in a new log file."""
        if running := self._running.get(container):
            running.log.reopen()
        reply({})

    def limit(self, reply: Reply, *, container: str, memory_bytes: int) -> None:
        """Change the memory limit of a running container."""
        if running := self._running.get(container):
            running.set_limit(memory_bytes)
        reply({})

    def execute(self, reply: Reply, *, container: str, argv: list[str], timeout_s: float) -> None:
        """Run a command in a container to its end."""
        state = self._states.get(container)
        if state is None or state.status != RUNNING:
            reply({"error": f"container {container} is not running"})
            return
        spec = ContainerSpec.read(container_directory(self._root, container))
        Execution(self._loop, spec, state.pid, argv, timeout_s=timeout_s, reply=reply)

    def _keep(self, container: str, state: ContainerState) -> None:
        self._states[container] = state
        if state.status == EXITED:
            self._running.pop(container, None)
        with suppress(OSError):  # it was removed meanwhile, or the disk is full: then only this keeper knows
            write_whole(container_directory(self._root, container) / "state.json", json.dumps(asdict(state)))


OPERATIONS: dict[str, Callable[..., None]] = {
    "sandbox": Keeper.sandbox, "start": Keeper.start, "stop": Keeper.stop, "remove": Keeper.remove,
    "states": Keeper.states, "reopen_log": Keeper.reopen_log, "limit": Keeper.limit, "execute": Keeper.execute,
}  # fmt: skip


def serve(path: Path, keeper: Keeper, loop: Loop) -> None:
    """Answer requests on a unix socket, from this node's root alone."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(128)

    def accept() -> None:
        connection, _ = listener.accept()
        received = bytearray()

        def receive() -> None:
            data = connection.recv(65536)
            received.extend(data)
            if not data or received.endswith(b"\n"):
                loop.forget(connection.fileno())
                if received:
                    _handle(keeper, bytes(received), connection)
                else:
                    connection.close()

        loop.watch(connection.fileno(), receive)

    loop.watch(listener.fileno(), accept)


def _handle(keeper: Keeper, line: bytes, connection: socket.socket) -> None:
    def reply(answer: dict[str, Any]) -> None:
        with suppress(OSError):  # the service has gone away
            connection.settimeout(REPLY_TIMEOUT_S)
            connection.sendall(json.dumps(answer).encode())
            connection.shutdown(socket.SHUT_RDWR)  # also for copies of this socket in forked processes
        connection.close()

    try:
        request = json.loads(line)
        OPERATIONS[request.pop("operation")](keeper, reply, **request)
    except Exception as error:  # noqa: BLE001 - one bad request must not end the containers
        traceback.print_exc()
        reply({"error": f"{type(error).__name__}: {error}"})


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(prog="leeway_standalone.cri.keeper", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="directory of the runtime's records")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to answer on")
    arguments = parser.parse_args()
    loop = Loop()
    serve(arguments.socket, Keeper(arguments.root, loop), loop)
    loop.run()


if __name__ == "__main__":
    main()
