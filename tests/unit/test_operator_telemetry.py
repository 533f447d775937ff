"""Verdicts tell of a profile's objectives only from when every gateway judges by them."""

import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import fake_prometheus
import pytest
from leeway_core.reading import Error, Missing, Outdated, Stale, Value
from leeway_core.snapshot import Telemetry
from leeway_operator.telemetry import Scope, read
from leeway_operator.telemetry.obedience import Obedience
from leeway_operator.telemetry.series import Series

DIGEST = "present"
SCOPE = Scope("shop", frozenset({"a.1", "b"}), ("chat",))


class Prometheus:
    """The fake one, in this process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def answer(self, mode: str) -> None:
        fake_prometheus.MODE.write_text(mode)

    def read(self, window_s: float = 100) -> Telemetry:
        now_s = time.time()
        return read(self.url, SCOPE, DIGEST, now_s - window_s, now_s)


@pytest.fixture
def prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prometheus]:
    monkeypatch.setattr(fake_prometheus, "MODE", tmp_path / "mode")
    monkeypatch.setattr(fake_prometheus.Answers, "digest", DIGEST)
    with ThreadingHTTPServer(("127.0.0.1", 0), fake_prometheus.Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Prometheus(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_gateways_that_always_judged_by_the_objectives_leave_the_window_whole(prometheus: Prometheus) -> None:
    telemetry = prometheus.read()
    assert isinstance(telemetry.attainment, Value)
    assert telemetry.span_s == pytest.approx(100, abs=2 * fake_prometheus.STEP_S)


def test_before_every_gateway_judges_by_the_objectives_nothing_is_a_value(prometheus: Prometheus) -> None:
    prometheus.answer("former")
    telemetry = prometheus.read()
    behind = Outdated(pods=("a.1", "b"))
    assert (telemetry.attainment, telemetry.goodput_rps, telemetry.objectives) == (behind, behind, {"chat": behind})
    assert telemetry.missed == {}


def test_a_window_begins_where_every_gateway_judges_by_the_objectives(prometheus: Prometheus) -> None:
    prometheus.answer("changed")
    telemetry = prometheus.read()
    assert isinstance(telemetry.attainment, Value)
    assert telemetry.span_s == pytest.approx(fake_prometheus.CHANGED_S, abs=2 * fake_prometheus.STEP_S)
    assert prometheus.read(window_s=10).span_s == pytest.approx(10, abs=2 * fake_prometheus.STEP_S), "no longer either"


@pytest.mark.parametrize(("mode", "kind"), [("empty", Missing), ("stale", Stale), ("nan", Error), ("error", Error)])
def test_what_is_wrong_with_the_readings_goes_before(prometheus: Prometheus, mode: str, kind: type) -> None:
    prometheus.answer(mode)
    assert isinstance(prometheus.read().attainment, kind)


def shown(pod: str, digest: str, *times: float) -> Series:
    return Series({"pod": pod, "digest": digest}, [(time, 1.0) for time in times])


def test_the_last_gateway_to_follow_counts_and_the_dead_do_not() -> None:
    series = [
        shown("a", "old", 1, 2),
        shown("a", "new", 3, 4, 5),
        shown("b", "old", 1, 2, 3),
        shown("b", "new", 4, 5),
        shown("dead", "old", 5),
    ]
    assert Obedience.of(series, {"a", "b"}, "new") == Obedience((), (), 4)
    assert Obedience.of(series, {"a", "b"}, "old").former == ("a", "b")


def test_objectives_that_were_in_force_before_count_anew() -> None:
    series = [shown("a", "new", 1, 2, 5, 6), shown("a", "other", 3, 4)]
    assert Obedience.of(series, {"a"}, "new").since_s == 5


def test_a_gateway_that_joins_or_restarts_cuts_no_window() -> None:
    series = [shown("a", "new", 1, 2, 6), shown("joined", "new", 5, 6)]
    assert Obedience.of(series, {"a", "joined"}, "new") == Obedience((), (), float("-inf"))


def test_a_gateway_that_tells_nothing_of_its_objectives_is_not_taken_for_one_that_obeys() -> None:
    obedience = Obedience.of([shown("a", "new", 1)], {"a", "b"}, "new")
    assert (obedience.former, obedience.behind) == ((), ("b",))
