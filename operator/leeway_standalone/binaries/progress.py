"""How the user sees that programs are being found, fetched and built: one line each."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Report(Protocol):
    """Takes what happens to a program; a program has one line."""

    def step(self, name: str, note: str, done: int = 0, total: int | None = None) -> None:
        """Say what is being done to it, and how much of it (no total: unknown)."""

    def finish(self, name: str, note: str) -> None:
        """Say how it ended."""


class BarReport:
    """Draws on a terminal, a bar for each program."""

    def __init__(self, progress: Progress) -> None:
        """Draw with this."""
        self._progress = progress
        self._task_of: dict[str, TaskID] = {}

    def step(self, name: str, note: str, done: int = 0, total: int | None = None) -> None:
        """Move the bar."""
        if name not in self._task_of:
            self._task_of[name] = self._progress.add_task(name, note=note, total=None)
        task = self._progress.tasks[self._task_of[name]]
        task.total = total
        self._progress.update(task.id, note=note, completed=done)

    def finish(self, name: str, note: str) -> None:
        """Fill the bar and stop its clock."""
        total = self._progress.tasks[self._task_of[name]].total if name in self._task_of else None
        self.step(name, note, done=int(total or 1), total=int(total or 1))


class LineReport:
    """Writes plain lines, when something begins and when it ends."""

    def __init__(self) -> None:
        """Begin with nothing written."""
        self._last: tuple[str, str] | None = None
        self._begin_s: dict[str, float] = {}

    def step(self, name: str, note: str, done: int = 0, total: int | None = None) -> None:  # noqa: ARG002 - as of BarReport
        """Write a line when the note is a new one."""
        self._begin_s.setdefault(name, time.monotonic())
        if self._last != (name, note):
            self._last = (name, note)
            self._write(f"{name}: {note} …")

    def finish(self, name: str, note: str) -> None:
        """Write how long it took."""
        took = time.monotonic() - self._begin_s[name] if name in self._begin_s else 0
        self._write(f"{name}: {note} ({took:.0f} s)" if took >= 1 else f"{name}: {note}")

    @staticmethod
    def _write(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - where there is no terminal


@contextmanager
def report_on_stderr() -> Iterator[Report]:
    """Draw bars where stderr is a terminal, else write lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineReport()
        return
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield BarReport(progress)
