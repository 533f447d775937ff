"""A container from its start to its exit, as the keeper sees it."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from leeway_standalone.cri.child import Child
from leeway_standalone.cri.container import run_container
from leeway_standalone.cri.logs import ContainerLog
from leeway_standalone.cri.loop import Loop
from leeway_standalone.cri.record import EXITED, RUNNING, ContainerSpec, ContainerState
from leeway_standalone.cri.usage import charged_bytes

SAMPLE_SECONDS, CLOSE_SAMPLE_SECONDS, CLOSE_TO_LIMIT = 0.25, 0.05, 0.8
START_ERROR_EXIT_CODE = 128


class RunningContainer:
    """Forks the container, logs it, holds it to its memory limit, and tells its state whenever that changes."""

    def __init__(
        self,
        loop: Loop,
        spec: ContainerSpec,
        on_state: Callable[[ContainerState], None],
        on_started: Callable[[str], None],
    ) -> None:
        self.log = ContainerLog(spec.log_path)
        self.limit_bytes = spec.memory_limit_bytes
        self._loop, self._spec = loop, spec
        self._on_state, self._on_started = on_state, on_started
        self._waiting: list[Callable[[], None]] = []
        self._start_error = b""
        self._reason = ""
        sinks = {"stdout": partial(self._write, "stdout"), "stderr": partial(self._write, "stderr"), "report": self._report}
        self._child = Child(
            loop, lambda pipes: run_container(spec, pipes["report"]), sinks, self._exited, new_pid_namespace=True
        )
        self._state = ContainerState(status=RUNNING, started_at_ns=time.time_ns(), pid=self._child.pid)

    def stop(self, grace_s: float, then: Callable[[], None]) -> None:
        """Ask the container to end, kill it when it has not after the grace period, and call when it is gone."""
        self._waiting.append(then)
        self._child.send(self._spec.stop_signal if grace_s > 0 else signal.SIGKILL)
        self._loop.after(grace_s, lambda: self._child.send(signal.SIGKILL))

    def _write(self, stream: str, data: bytes) -> None:
        self.log.write(stream, data, time.time_ns())

    def _report(self, data: bytes) -> None:
        """What the child says before it becomes the container's command; silence is success."""
        self._start_error += data
        if not data and not self._start_error:
            self._on_state(self._state)
            self._on_started("")
            self._watch_memory()

    def _watch_memory(self) -> None:
        if self._state.status != RUNNING:
            return
        share = 0.0
        if self.limit_bytes:
            with suppress(OSError):  # it has just ended
                share = charged_bytes(self._state.pid, self.limit_bytes) / self.limit_bytes
        if share > 1:
            self._reason = "OOMKilled"
            self._child.send(signal.SIGKILL)
        self._loop.after(CLOSE_SAMPLE_SECONDS if share > CLOSE_TO_LIMIT else SAMPLE_SECONDS, self._watch_memory)

    def _exited(self, exit_code: int) -> None:
        self.log.close()
        message = self._start_error.decode(errors="replace")
        if message:
            exit_code, self._reason = START_ERROR_EXIT_CODE, "StartError"
        reason = self._reason or ("Error" if exit_code else "Completed")
        self._state = replace(
            self._state,
            status=EXITED, pid=0, finished_at_ns=time.time_ns(), exit_code=exit_code, reason=reason, message=message,
        )  # fmt: skip
        self._on_state(self._state)
        if message:
            self._on_started(message)
        for then in self._waiting:
            then()
