"""A process forked by the keeper, whose outputs are pumped until it ends."""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NoReturn

from leeway_standalone import linux
from leeway_standalone.cri.container import exit_code
from leeway_standalone.cri.loop import Loop
from leeway_standalone.linux import Namespace

CHUNK_BYTES = 64 * 1024  # a pipe holds no more


class Child:
    """A forked process. Its pipes go to `sinks` (empty data is the end of one), then its exit code to `on_exit`.

    One pipe is `report`, for errors before it runs what it is for.
    """

    def __init__(
        self,
        loop: Loop,
        action: Callable[[dict[str, int]], NoReturn],
        sinks: Mapping[str, Callable[[bytes], None]],
        on_exit: Callable[[int], None],
        *,
        new_pid_namespace: bool = False,
    ) -> None:
        """Fork, and have the child do `action` with the pipes to write to; `stdout` and `stderr` become its own."""
        self._loop, self._on_exit = loop, on_exit
        pipes = {name: os.pipe() for name in sinks}
        self.pid = _fork_first() if new_pid_namespace else os.fork()
        if self.pid == 0:
            _run(action, {name: write for name, (_, write) in pipes.items()})
        self._handle = os.pidfd_open(self.pid)
        loop.watch(self._handle, self._finish)
        self._open: dict[int, Callable[[bytes], None]] = {}
        for name, (read, write) in pipes.items():
            os.close(write)
            os.set_blocking(read, False)
            self._open[read] = sinks[name]
            loop.watch(read, partial(self._pump, read))

    def send(self, number: int) -> None:
        """Send a signal; to a process that has ended, do nothing."""
        if self._handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def _pump(self, read: int) -> None:
        with suppress(BlockingIOError):
            data = os.read(read, CHUNK_BYTES)
            sink = self._open[read]
            if not data:
                self._close(read)
            sink(data)

    def _close(self, read: int) -> None:
        self._loop.forget(read)
        os.close(read)
        del self._open[read]

    def _finish(self) -> None:
        self._loop.forget(self._handle)
        os.close(self._handle)
        self._handle = -1
        for read, sink in list(self._open.items()):
            self._pump(read)
            if read in self._open:  # something that the process left behind holds the other end
                self._close(read)
                sink(b"")
        self._on_exit(exit_code(os.waitpid(self.pid, 0)[1]))


def _run(action: Callable[[dict[str, int]], NoReturn], writes: dict[str, int]) -> NoReturn:
    """In the child: do the action with the pipes as outputs; nothing may return into the keeper's loop."""
    try:
        with open(os.devnull) as null:
            os.dup2(null.fileno(), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            if name in writes:
                os.dup2(writes[name], number)
        action(writes)
    except BaseException as error:  # noqa: BLE001 - all that is not expected
        os.write(writes["report"], f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(125)


def _fork_first() -> int:
    """Fork a child that is the first process of a new PID namespace."""
    keeper = os.getpid()
    with open("/proc/self/ns/pid") as own:
        linux.unshare(Namespace.PID)
        try:
            return os.fork()
        finally:
            if os.getpid() == keeper:
                linux.setns(own.fileno(), Namespace.PID)
