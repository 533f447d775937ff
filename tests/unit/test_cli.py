"""The command line: help, and errors in words that lose nothing of what they quote."""

import os
import signal
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from launching import leeway
from leeway_cli import main
from leeway_cli.extras import missing_packages, needing
from leeway_core.errors import UserError

COMMANDS = ["demo", "up", "status", "down", "binaries", "load", "explain", "operator", "tuner", "engine", "gateway"]


def test_help_names_every_subcommand() -> None:
    said = leeway("--help")
    assert said.returncode == 0
    assert all(command in said.stdout for command in COMMANDS)


def test_a_shell_is_offered_completion() -> None:
    said = leeway("--show-completion", "bash", environment={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert "complete -o default -F" in said.stdout


def test_a_mistyped_option_is_named() -> None:
    said = leeway("up", "--prot", "1")
    assert (said.returncode, "Traceback" in said.stderr) == (2, False)
    assert "--prot" in said.stderr


QUOTED = 'E0101 x.go:1] "Failed" err="[invalid flag a, must set b]" [/var/x] [running] :warning: [red]'


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [(UserError(QUOTED), 1, QUOTED), (ValueError(QUOTED), 70, f"ValueError: {QUOTED}")],
    ids=["of the user", "of Leeway"],
)
def test_an_error_is_printed_as_it_is(
    error: Exception, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.delenv("LEEWAY_DEBUG", raising=False)
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(f"error: {words}\n")


def test_a_defect_shows_where_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError(QUOTED)

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setenv("LEEWAY_DEBUG", "1")
    with pytest.raises(ValueError, match="Failed"):
        main.run()


def test_packages_that_are_not_installed_are_named() -> None:
    requirements = [
        "rich>=14",
        "no-such-package[all]>=1; extra == 'tuner'",
        'pydantic>=2; extra == "tuner"',
        "x; extra == 'y'",
    ]
    assert missing_packages(requirements, "tuner") == ["no-such-package"]


@pytest.mark.parametrize("extra", ["demo", "engine", "gateway", "load", "operator", "standalone", "tuner"])
def test_each_subcommand_needs_an_extra_that_there_is(extra: str) -> None:
    assert any(f"extra == '{extra}'" in requirement for requirement in requires("leeway") or ())
    assert missing_packages(requires("leeway") or (), extra) == []


def test_a_subcommand_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def tuner() -> None:
        raise AssertionError("it must not run")

    monkeypatch.setattr("leeway_cli.extras.requires", lambda _name: ["no-such-package; extra == 'tuner'"])
    with pytest.raises(UserError, match=r"`leeway tuner` needs .*no-such-package.*leeway\[tuner\]"):
        needing("tuner", tuner)()


def test_a_subcommand_loads_its_own_part_alone() -> None:
    """Help is quick, and a pod of the gateway holds no torch."""
    script = "import sys, leeway_cli.main; print({'torch', 'kopf', 'optuna', 'grpc'} & sys.modules.keys())"
    said = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.strip() == "set()"


def test_the_first_process_of_a_container_can_be_ended_while_it_still_starts() -> None:
    """The kernel keeps signals without a handler from the first process of a PID namespace."""
    script = (
        "import time; from leeway_cli import main; "
        "main.app = lambda: (print('starts', flush=True), time.sleep(60)); main.run()"
    )
    command = ("unshare", "--user", "--pid", "--fork", "--kill-child", sys.executable, "-c", script)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout
        assert outer.stdout.readline() == "starts\n"
        (first,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert outer.wait(10) == 128 + signal.SIGTERM
