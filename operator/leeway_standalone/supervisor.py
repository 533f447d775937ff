"""Starts the node's components in order, reaps, and keeps them running; PID 1 of the standalone."""

import http.client
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from leeway_standalone.components import Component, Probe
from leeway_standalone.credentials import Credentials
from leeway_standalone.errors import StandaloneError

POLL_S = 0.05
READY_TIMEOUT_S = 120.0
RESTART_DELAYS_S = (0.2, 1.0, 5.0, 15.0)
HEALTHY_AFTER_S = 60.0
LAST_LINES = 15


@dataclass
class _Running:
    component: Component
    process: subprocess.Popen[bytes]
    started_at_s: float
    failures: int = 0
    restart_at_s: float | None = None


class Supervisor:
    """Runs components as children, each with a log file; what stops after the start is started again."""

    def __init__(self, logs: Path, environment: Mapping[str, str], credentials: Credentials) -> None:
        """Log to `logs`; every child gets `environment`."""
        self._logs = logs
        self._environment = dict(environment)
        self._credentials = credentials
        self._running: dict[str, _Running] = {}

    def start(self, components: Sequence[Component], on_ready: Callable[[str, float], None]) -> None:
        """Start all, each group once the one before it is ready; raises with the last lines of one that dies."""
        for group in _groups(components):
            waiting = {component.name: component for component in group}
            began_s = time.monotonic()
            for component in group:
                self._spawn(component)
            while waiting:
                self._reap()
                for name, running in self._running.items():
                    if running.restart_at_s is not None:
                        raise StandaloneError(f"{self._obituary(name)}. {self._last_lines(name)}")
                for name, component in list(waiting.items()):
                    if component.probe is None or self._is_ready(component.probe):
                        del waiting[name]
                        on_ready(name, time.monotonic() - began_s)
                if time.monotonic() - began_s > READY_TIMEOUT_S:
                    raise StandaloneError(
                        f"{', '.join(waiting)} did not become ready within {READY_TIMEOUT_S:.0f} s.\n"
                        + "\n".join(self._last_lines(name) for name in waiting)
                    )
                time.sleep(POLL_S)

    def supervise(self, stop: Callable[[], bool], on_ailing: Callable[[dict[str, str]], None]) -> None:
        """Reap orphans and start again what ended, with growing delays, until told to stop.

        `on_ailing` hears whenever it changes which components ended of late: what happened in words, by name.
        """
        ailing: dict[str, str] = {}
        while not stop():
            self._reap()
            now_s = time.monotonic()
            for name, running in list(self._running.items()):
                if running.restart_at_s is not None:
                    times = f", {running.failures} times in a row" if running.failures > 1 else ""
                    said = f"{self._obituary(name)}{times}, and is started again; its log is {self._log(name)}"
                    if ailing.get(name) != said:
                        on_ailing(ailing := {**ailing, name: said})
                    if now_s >= running.restart_at_s:
                        self._spawn(running.component, running.failures)
                elif name in ailing and now_s - running.started_at_s > HEALTHY_AFTER_S:
                    on_ailing(ailing := {other: said for other, said in ailing.items() if other != name})
            time.sleep(POLL_S * 4)

    def stop(self) -> None:
        """End the components in reverse order, each with a moment to write what it must."""
        for name in reversed(self._running):
            process = self._running[name].process
            with suppress(ProcessLookupError):
                process.terminate()
        deadline_s = time.monotonic() + 5.0
        etcd = self._running.get("etcd")
        while etcd and etcd.process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(POLL_S)

    def _spawn(self, component: Component, failures: int = 0) -> None:
        log = self._log(component.name)
        if component.name not in self._running and log.exists():
            log.rename(log.with_suffix(".previous.log"))
        with open(log, "ab") as output:
            process = subprocess.Popen(
                component.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
                pass_fds=component.inherits,
            )
        self._running[component.name] = _Running(component, process, time.monotonic(), failures)

    def _reap(self) -> None:
        """Collect ended children: components are set to start again, orphans of theirs are only buried."""
        for running in self._running.values():
            if running.restart_at_s is None and running.process.poll() is not None:
                now_s = time.monotonic()
                if now_s - running.started_at_s > HEALTHY_AFTER_S:
                    running.failures = 0
                delay_s = RESTART_DELAYS_S[min(running.failures, len(RESTART_DELAYS_S) - 1)]
                running.failures += 1
                running.restart_at_s = now_s + delay_s
        components = {running.process.pid for running in self._running.values()}
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in components:
                return
            os.waitpid(ended.si_pid, 0)

    def _is_ready(self, probe: Probe) -> bool:
        with suppress(OSError, http.client.HTTPException):
            if isinstance(probe.target, Path):
                with closing(socket.socket(socket.AF_UNIX)) as client:
                    client.connect(str(probe.target))
                return True
            return self._get_status(probe.target, probe.client) == 200
        return False

    def _get_status(self, url: str, client: str | None) -> int:
        parts = urlsplit(url)
        assert parts.hostname
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._credentials.authority.certificate)
            if client:
                files = self._credentials.of[client]
                context.load_cert_chain(files.certificate, files.key)
            else:  # a component's own self-signed certificate, on the node's loopback
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=2, context=context)
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=2)
        with closing(connection):
            connection.request("GET", parts.path)
            return connection.getresponse().status

    def _obituary(self, name: str) -> str:
        code = self._running[name].process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{name} {how}"

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _last_lines(self, name: str) -> str:
        log = self._log(name)
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []
        return f"The last lines of {log}:\n" + "\n".join(f"  {line}" for line in lines)


def _groups(components: Sequence[Component]) -> Iterator[list[Component]]:
    group: list[Component] = []
    for component in components:
        if group and not component.joins:
            yield group
            group = []
        group.append(component)
    if group:
        yield group
