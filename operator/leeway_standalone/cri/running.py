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

SAMPLE_S, CLOSE_SAMPLE_S, CLOSE_TO_LIMIT = 0.25, 0.05, 0.8
START_ERROR_EXIT_CODE = 128


class RunningContainer:
    """Forks the container, logs it, holds it to its memory limit, and tells its state whenever that changes."""

    def __init__(
        self,
        loop: Loop,
        spec: ContainerSpec,
        *,
        on_state: Callable[[ContainerState], None],
        on_start: Callable[[str], None],
    ) -> None:
        """Start; `on_start` hears what kept the command from running, or an empty string when it runs."""
        self.log = ContainerLog(spec.log_path)
        self._loop, self._spec, self._on_state, self._on_start = loop, spec, on_state, on_start
        self._limit_bytes = 0
        self._start_error = b""
        self._reason = ""
        self._on_exit: list[Callable[[], None]] = []
        self._child = Child(
            loop,
            lambda pipes: run_container(spec, pipes["report"]),
            {name: partial(self._write, name) for name in ("stdout", "stderr")} | {"report": self._report},
            self._exited,
            new_pid_namespace=True,
        )
        self._state = ContainerState(status=RUNNING, started_at_ns=time.time_ns(), pid=self._child.pid)

    def stop(self, grace_s: float, then: Callable[[], None]) -> None:
        """Ask the container to end, kill it when it has not after the grace period, and call when it is gone."""
        self._on_exit.append(then)
        self._child.send(self._spec.stop_signal if grace_s > 0 else signal.SIGKILL)
        self._loop.after(grace_s, lambda: self._child.send(signal.SIGKILL))

    def set_limit(self, memory_bytes: int) -> None:
        """Hold the container to a memory limit from now on; 0 is none."""
        watched = self._limit_bytes > 0
        self._limit_bytes = memory_bytes
        if not watched:
            self._watch_memory()

    def _watch_memory(self) -> None:
        if not self._limit_bytes or self._state.status == EXITED:
            return
        share = 0.0
        with suppress(OSError):  # it has just ended
            share = charged_bytes(self._state.pid, self._limit_bytes) / self._limit_bytes
        if share > 1:
            self._reason = "OOMKilled"
            self._child.send(signal.SIGKILL)
        self._loop.after(CLOSE_SAMPLE_S if share > CLOSE_TO_LIMIT else SAMPLE_S, self._watch_memory)

    def _write(self, stream: str, data: bytes) -> None:
        self.log.write(stream, data, time.time_ns())

    def _report(self, data: bytes) -> None:
        """What the child says before it becomes the container's command; silence is success."""
        self._start_error += data
        if not data and not self._start_error:
            self._on_state(self._state)
            self._on_start("")
            self.set_limit(self._spec.memory_limit_bytes)

    def _exited(self, exit_code: int) -> None:
        self.log.close()
        error = self._start_error.decode(errors="replace").strip()
        if error:
            exit_code, self._reason = START_ERROR_EXIT_CODE, "StartError"
        self._state = replace(
            self._state,
            status=EXITED,
            pid=0,
            finished_at_ns=time.time_ns(),
            exit_code=exit_code,
            reason=self._reason or ("Error" if exit_code else "Completed"),
            message=error,
        )
        self._on_state(self._state)
        if error:
            self._on_start(error)
        for then in self._on_exit:
            then()
