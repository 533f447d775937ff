"""What is asked of the machine, and what a user reads when it is not there."""

import os
from collections import namedtuple
from pathlib import Path

import pytest
from leeway_standalone.errors import StandaloneError
from leeway_standalone.machine import check_disk, check_machine, check_memory, check_path
from leeway_standalone.state import Launch, Ports, StateDirectory, default_directory

Statvfs = namedtuple("Statvfs", "f_bavail f_frsize")


def test_too_little_memory_is_said_with_figures() -> None:
    check_memory("MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n")
    with pytest.raises(StandaloneError, match=r"0\.8 GB available, and a standalone needs 1\.5 GB"):
        check_memory("MemTotal: 9000000 kB\nMemAvailable: 800000 kB\n")


def test_a_full_disk_is_said_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_disk(tmp_path / "not" / "yet" / "there")
    monkeypatch.setattr(os, "statvfs", lambda _: Statvfs(100, 4096))
    with pytest.raises(StandaloneError, match=r"Disk full.*--state"):
        check_disk(tmp_path)


def test_a_path_too_long_for_sockets_is_named() -> None:
    check_path(Path("/" + 68 * "a"))
    with pytest.raises(StandaloneError, match=r"70 bytes.*69 at most.*--state"):
        check_path(Path("/" + 69 * "a"))


def test_other_systems_are_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(StandaloneError, match="needs Linux"):
        check_machine(tmp_path)


def test_the_lock_says_who_runs_and_is_free_when_its_holder_is_gone(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.create()
    launch = Launch(os.getpid(), 1.0, Ports(1, 2, 3))
    with state.hold():
        state.announce(launch)
        assert StateDirectory(tmp_path).running() == launch
        with pytest.raises(StandaloneError, match="already runs"), StateDirectory(tmp_path).hold():
            pass
    assert StateDirectory(tmp_path).running() is None
    assert state.remembered_ports() == Ports(1, 2, 3)


def test_what_a_killed_launcher_announced_does_not_count(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.create()
    state.announce(Launch(1, 1.0, Ports(1, 2, 3)))
    assert state.running() is None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StandaloneError, match="--state"):
        StateDirectory(tmp_path / "file" / "state").create()


def test_the_default_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_STATE", "/somewhere")
    assert default_directory() == Path("/somewhere")
    monkeypatch.delenv("LEEWAY_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert default_directory() == Path("/xdg/leeway/standalone")
