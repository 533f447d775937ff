"""A standalone as seen from outside: start it, ask how it is, stop it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leeway_standalone.errors import StandaloneError
from leeway_standalone.machine import check_machine
from leeway_standalone.settings import LaunchSettings
from leeway_standalone.state import Launch, Ports, StateDirectory

STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Up:
    """A standalone that is ready."""

    launch: Launch
    seconds: float


class Standalone:
    """One state directory, and whatever runs in it."""

    def __init__(self, root: Path) -> None:
        """Refer to the standalone in `root`, running or not."""
        self.state = StateDirectory(root)
        self._launcher: subprocess.Popen[str] | None = None

    def start(
        self,
        *,
        ports: Ports,
        binaries: Mapping[str, Path],
        manifests: Sequence[Path] = (),
        chart_values: Sequence[Path] = (),
        on_ready: Callable[[str, float], None] = lambda _name, _seconds: None,
    ) -> Up:
        """Start it and return when all of it is ready; nothing is left running when that fails."""
        check_machine(self.state.root)
        self.state.create()
        if self.state.running() is None:
            self._bury_launcher()
        settings = LaunchSettings(
            state=str(self.state.root),
            ports=ports,
            binaries={name: str(path) for name, path in binaries.items()},
            manifests=tuple(str(path.absolute()) for path in manifests),
            chart_values=tuple(str(path.absolute()) for path in chart_values),
        )
        with open(self.state.logs / "launcher.log", "a") as log:
            launcher = subprocess.Popen(
                (sys.executable, "-P", "-m", "leeway_standalone.launcher", settings.to_json()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._launcher = launcher
        assert launcher.stdout
        try:
            with launcher.stdout:
                return self._follow(launcher, on_ready)
        except BaseException:
            launcher.terminate()
            launcher.wait(STOP_TIMEOUT_S)
            raise

    def stop(self) -> bool:
        """Stop it, and return whether it ran; afterwards no process of it is left."""
        launch = self.state.running()
        if launch is None:
            self._bury_launcher()
            return False
        with suppress(ProcessLookupError):
            os.kill(launch.pid, signal.SIGTERM)
        if not self.state.wait_until_stopped(STOP_TIMEOUT_S):
            with suppress(ProcessLookupError):
                os.kill(launch.pid, signal.SIGKILL)
            if not self.state.wait_until_stopped(STOP_TIMEOUT_S):
                raise StandaloneError(f"The launcher (process {launch.pid}) did not stop. End it with kill -9.")
        self._bury_launcher()
        return True

    def _bury_launcher(self) -> None:
        """Collect the exit status of a launcher of this process that has ended, so that it is no zombie."""
        if self._launcher:
            self._launcher.wait()
            self._launcher = None

    def _follow(self, launcher: "subprocess.Popen[str]", on_ready: Callable[[str, float], None]) -> Up:
        assert launcher.stdout
        for line in launcher.stdout:
            event: dict[str, Any] = json.loads(line)
            match event["event"]:
                case "ready":
                    on_ready(event["name"], event["seconds"])
                case "failed":
                    raise StandaloneError(event["message"])
                case "up":
                    launch = self.state.running()
                    if launch:
                        return Up(launch, event["seconds"])
        log = self.state.logs / "launcher.log"
        raise StandaloneError(f"The launcher ended while it started:\n{log.read_text()[-2000:]}")
