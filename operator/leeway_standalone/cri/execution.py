"""A command that the keeper runs in a container, for the kubelet's probes and hooks."""

import base64
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from leeway_standalone.cri.child import Child
from leeway_standalone.cri.container import run_inside
from leeway_standalone.cri.loop import Loop
from leeway_standalone.cri.record import ContainerSpec

MAX_OUTPUT_BYTES = 16 * 1024 * 1024  # of each stream; the rest is thrown away, as the CRI asks


class Execution:
    """Runs to its end, or is killed with its process group when it is overdue; then replies once."""

    def __init__(
        self,
        loop: Loop,
        spec: ContainerSpec,
        pid: int,
        argv: list[str],
        *,
        timeout_s: float,
        reply: Callable[[dict[str, Any]], None],
    ) -> None:
        """Start in the container whose first process is `pid`; a timeout of 0 is none."""
        self._reply = reply
        self._overdue = False
        self._outputs = {name: bytearray() for name in ("stdout", "stderr", "report")}
        sinks = {name: partial(self._receive, output) for name, output in self._outputs.items()}
        self._child = Child(loop, lambda pipes: run_inside(spec, pid, argv, pipes["report"]), sinks, self._exited)
        if timeout_s:
            loop.after(timeout_s, self._expire)

    @staticmethod
    def _receive(output: bytearray, data: bytes) -> None:
        output += data[: MAX_OUTPUT_BYTES - len(output)]

    def _expire(self) -> None:
        self._overdue = True
        self._child.send(signal.SIGTERM)

    def _exited(self, exit_code: int) -> None:
        answer: dict[str, Any] = {"exit_code": exit_code}
        if self._overdue:
            answer = {"overdue": True}
        elif self._outputs["report"]:
            answer = {"error": self._outputs["report"].decode().strip()}
        else:
            answer |= {name: base64.b64encode(self._outputs[name]).decode() for name in ("stdout", "stderr")}
        self._reply(answer)
