"""What a user hears of components that die, while the standalone starts and later."""

import subprocess
import sys
import textwrap
from pathlib import Path

PREAMBLE = """
import sys, time
from pathlib import Path
from typing import Any
from leeway_standalone import supervisor
from leeway_standalone.components import Component, Probe
supervisor.HEALTHY_AFTER_S = 0.5
supervisor.RESTART_DELAYS_S = (0.2,)
logs = Path(sys.argv[1])
of_ours: Any = None
runs = supervisor.Supervisor(logs, {"PATH": "/usr/bin:/bin"}, of_ours)
def shell(name, script, probe=None):
    return Component(name, ("sh", "-c", script), probe)
never = Probe(logs / "no-socket")
"""


def supervised(logs: Path, script: str) -> str:
    """Run a script with a supervisor, apart from the tests: it buries every child of its process."""
    said = subprocess.run(
        (sys.executable, "-c", PREAMBLE + textwrap.dedent(script), str(logs)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not said.stderr
    return said.stdout


def test_one_that_was_ready_and_dies_while_others_start_is_named(tmp_path: Path) -> None:
    said = supervised(
        tmp_path,
        """
        first = shell("first", "echo made of cheese; sleep 0.3; exit 4")
        try:
            runs.start([first, shell("second", "sleep 60", never)], lambda name, seconds: None)
        except supervisor.StandaloneError as error:
            print(error)
        runs.stop()
        """,
    )
    assert "first ended with exit code 4" in said
    assert "made of cheese" in said
    assert "second" not in said


def test_one_that_dies_later_is_told_until_it_is_well_again(tmp_path: Path) -> None:
    said = supervised(
        tmp_path,
        """
        told = []
        until = time.monotonic() + 6
        twice = f"cd {logs}; test -e b && exec sleep 60; test -e a && touch b; touch a; sleep 0.1; exit 3"
        runs.start([shell("flaky", twice), shell("steady", "sleep 60")], lambda name, seconds: None)
        runs.supervise(lambda: told[-1:] == [{}] or time.monotonic() > until, told.append)
        runs.stop()
        print(*told, sep="\\n")
        """,
    )
    once, twice, well = said.splitlines()
    assert "flaky ended with exit code 3, and is started again; its log is" in once
    assert "flaky ended with exit code 3, 2 times in a row" in twice
    assert well == "{}"
