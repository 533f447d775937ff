"""The process that holds a standalone: it opens the host's ports, starts the node, installs what runs on it.

While it lives, the standalone runs; when it dies, however it dies, everything inside is gone at once.
Standard output: one JSON object a line for each event, until the standalone is up or has failed.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from leeway_standalone.errors import StandaloneError
from leeway_standalone.installation import Installation
from leeway_standalone.settings import LaunchSettings, NodeSettings
from leeway_standalone.state import Launch, Ports, StateDirectory

STOP_TIMEOUT_S = 15.0
LOOK_EVERY_S = 2.0


def main() -> None:
    """Run a standalone until told to stop; the settings are the only argument."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _run(LaunchSettings.from_json(sys.argv[1]))
    except StandaloneError as error:
        _tell(event="failed", message=str(error))
        sys.exit(1)


def _run(settings: LaunchSettings) -> None:
    began_s = time.monotonic()
    state = StateDirectory(Path(settings.state))
    state.create()
    with ExitStack() as stack:
        lock = stack.enter_context(state.hold())
        listeners = {name: stack.enter_context(_listen(name, port)) for name, port in asdict(settings.ports).items()}
        ports = Ports(**{name: listener.getsockname()[1] for name, listener in listeners.items()})
        state.announce(Launch(os.getpid(), time.time(), ports))
        node = stack.enter_context(_node(settings, state, lock, listeners))
        for listener in listeners.values():
            listener.close()
        _bring_up(node, Installation(state, settings.binaries, settings.manifests, settings.chart_values))
        _tell(event="up", seconds=round(time.monotonic() - began_s, 1), ports=asdict(ports))
        _leave_terminal()
        _wait(node, state)


@contextmanager
def _listen(name: str, port: int) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise StandaloneError(
                f"Port {port} of 127.0.0.1 cannot be used for {name}: {error.strerror}. "
                f"Choose another with --{name}-port, or 0 for any that is free."
            ) from error
        listener.listen(128)
        yield listener


@contextmanager
def _node(
    settings: LaunchSettings, state: StateDirectory, lock: int, listeners: Mapping[str, socket.socket]
) -> Iterator[subprocess.Popen[str]]:
    """Start the node, which holds the lock too, so that a free lock means that all of it is gone."""
    descriptors = {name: listener.fileno() for name, listener in listeners.items()}
    node_settings = NodeSettings(
        state=str(state.root),
        binaries=settings.binaries,
        api_port=listeners["api"].getsockname()[1],
        descriptors=descriptors,
    )
    with open(state.logs / "node.log", "w") as log:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "leeway_standalone.node", node_settings.to_json()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(lock, *descriptors.values()),
            text=True,
        )
    assert process.stdin
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _bring_up(node: subprocess.Popen[str], installation: Installation) -> None:
    """Install as soon as the API server answers, while the node's other components still start."""
    assert node.stdout
    failures: list[StandaloneError] = []

    def install() -> None:
        try:
            installation.install(lambda name, seconds: _tell(event="ready", name=name, seconds=seconds))
        except StandaloneError as error:
            failures.append(error)

    installing = threading.Thread(target=install, daemon=True)
    for line in node.stdout:
        event = json.loads(line)
        match event["event"]:
            case "failed":
                raise StandaloneError(event["message"])
            case "started":
                break
            case "ready":
                _tell(**event)
                if event["name"] == "kube-apiserver":
                    installing.start()
    else:
        raise StandaloneError(f"The node ended while it started; its log is {installation.state.logs / 'node.log'}.")
    installing.join()
    if failures:
        raise failures[0]


def _wait(node: subprocess.Popen[str], state: StateDirectory) -> None:
    """Wait until the node ends, or until its folder is removed: nobody could find and stop it then."""
    while state.root.exists():
        with suppress(subprocess.TimeoutExpired):
            node.wait(LOOK_EVERY_S)
            return


def _leave_terminal() -> None:
    """Say nothing more to whoever started us."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)


def _tell(**event: object) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps(event), flush=True)  # noqa: T201 - this is how the launcher speaks to `leeway up`


if __name__ == "__main__":
    main()
