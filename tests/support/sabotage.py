"""A pod whose engine loop is held up, fails or schedules nothing for as long as a test says so."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SABOTAGE = """
import os, sys, time
if "leeway_engine.server.loop" in sys.orig_argv:
    from pathlib import Path
    from leeway_engine.runner import ModelRunner
    from leeway_engine.scheduling.scheduler import Scheduler

    flags = Path(os.environ["SABOTAGE"])
    launch, admit = ModelRunner.launch, Scheduler._plan_admissions

    def sabotaged(self, plan):
        while (flags / "hold").exists():
            (flags / "held").touch()
            time.sleep(0.002)
        if (flags / "fail").exists():
            raise RuntimeError("a fault that a test has asked for")
        return launch(self, plan)

    def starved(self, plan, room):
        return not (flags / "starve").exists() and admit(self, plan, room)

    ModelRunner.launch, Scheduler._plan_admissions = sabotaged, starved
"""


class Sabotage:
    """Switches of one pod's engine loop."""

    def __init__(self, folder: Path) -> None:
        """Keep them in a new folder."""
        self._folder = folder
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_SABOTAGE)

    @property
    def environment(self) -> dict[str, str]:
        """What the pod's processes are started with."""
        path = f"{self._folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        return {"SABOTAGE": str(self._folder), "PYTHONPATH": path}

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Let each iteration fail."""
        with self._flag("fail"):
            yield

    @contextmanager
    def starving(self) -> Iterator[None]:
        """Let no request be admitted."""
        with self._flag("starve"):
            yield

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the loop as it launches an iteration; there must be one to launch."""
        held = self._folder / "held"
        held.unlink(missing_ok=True)
        with self._flag("hold"):
            deadline_s = time.monotonic() + 60
            while not held.exists():
                assert time.monotonic() < deadline_s, "no iteration is launched"
                time.sleep(0.002)
            yield

    @contextmanager
    def _flag(self, name: str) -> Iterator[None]:
        flag = self._folder / name
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()
