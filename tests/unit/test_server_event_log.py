"""The event log: lines whole and few enough, and a disk that fails or hangs stops nothing."""

import json
import logging
import os
import time
from pathlib import Path

import pytest
from leeway_engine.request_event import RequestEvent
from leeway_engine.server import event_log as module
from leeway_engine.server.event_log import EventLog
from leeway_engine.server.metrics.server_metrics import ServerMetrics
from leeway_engine.server.rotating_file import RotatingFile


def event(number: int) -> RequestEvent:
    return RequestEvent(1.5, f"cmpl-{number}", "arrived", "waiting", 7, 16, remaining_tokens=7, slo_class="chat")


def value(metrics: ServerMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"leeway_engine_event_log_{name}_total")


def wait_for(metrics: ServerMetrics, name: str, number: float) -> None:
    deadline_s = time.monotonic() + 20
    while value(metrics, name) != number:
        assert time.monotonic() < deadline_s, f"{name} is {value(metrics, name)}, not {number}"
        time.sleep(0.005)


def ids(file: Path) -> list[str]:
    return [json.loads(line)["request_id"] for line in file.read_text().splitlines()]


def test_each_event_is_a_json_object_on_a_line_of_its_own(tmp_path: Path) -> None:
    metrics = ServerMetrics()
    log = EventLog(RotatingFile(tmp_path / "events.jsonl", 1 << 20, 2), metrics.event_log)
    log.write([event(1), event(2)])
    log.write([])
    log.write([event(3)])
    log.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {
        "time_s": 1.5,
        "request_id": "cmpl-1",
        "event": "arrived",
        "phase": "waiting",
        "prompt_tokens": 7,
        "max_tokens": 16,
        "remaining_tokens": 7,
        "slo_class": "chat",
    }
    assert ids(tmp_path / "events.jsonl") == ["cmpl-1", "cmpl-2", "cmpl-3"]
    assert (value(metrics, "lines"), value(metrics, "lost")) == (3, 0)


@pytest.mark.parametrize("files", [1, 3])
def test_a_full_file_goes_on_in_a_new_one_and_the_oldest_goes(tmp_path: Path, files: int) -> None:
    log = RotatingFile(tmp_path / "events", 30, files)
    for number in range(20):
        log.write(b"%09d\n" % number)
    log.close()
    kept = [tmp_path / "events", *(tmp_path / f"events.{number}" for number in range(1, files))]
    assert sorted(tmp_path.iterdir()) == kept
    assert [len(file.read_text().splitlines()) for file in kept] == [2] + [3] * (files - 1)
    newest_first = [int(line) for file in kept for line in reversed(file.read_text().splitlines())]
    assert newest_first == list(range(19, 19 - len(newest_first), -1))


def test_a_log_is_continued_by_the_next_pod_at_its_size(tmp_path: Path) -> None:
    for number in range(4):
        log = RotatingFile(tmp_path / "events", 30, 2)
        log.write(b"%09d\n" % number)
        log.close()
    assert (tmp_path / "events").read_text() == "000000003\n"
    assert len((tmp_path / "events.1").read_text().splitlines()) == 3


def test_a_full_disk_is_said_once_and_what_it_costs_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ServerMetrics()
    log = EventLog(RotatingFile(Path("/dev/full"), 1 << 20, 2), metrics.event_log)
    with caplog.at_level(logging.INFO):
        for number in range(5):
            log.write([event(number), event(number)])
        log.close()
    assert (value(metrics, "lines"), value(metrics, "lost")) == (0, 10)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "No space left on device" in message


def test_a_path_that_comes_back_is_written_to_again(tmp_path: Path) -> None:
    metrics = ServerMetrics()
    file = tmp_path / "later" / "events"
    log = EventLog(RotatingFile(file, 1 << 20, 2), metrics.event_log)
    log.write([event(1)])
    wait_for(metrics, "lost", 1)
    file.parent.mkdir()
    log.write([event(2)])
    log.close()
    assert ids(file) == ["cmpl-2"]


def test_a_write_that_fails_half_way_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RotatingFile(tmp_path / "events", 1 << 20, 2)
    log.write(b"whole\n")
    really, calls = os.write, iter([3])

    def fill_the_disk(fd: int, data: bytes) -> int:
        if (room := next(calls, None)) is None:
            raise OSError(28, "No space left on device")
        return really(fd, data[:room])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill_the_disk)
        with pytest.raises(OSError, match="No space"):
            log.write(b"broken\n")
    log.write(b"again\n")
    log.close()
    assert (tmp_path / "events").read_text() == "whole\nagain\n"


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSING_S", 0.05)
    monkeypatch.setattr(module, "MOST_BATCHES", 3)
    metrics = ServerMetrics()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # Opening it for writing takes until somebody reads.
    log = EventLog(RotatingFile(pipe, 1 << 20, 2), metrics.event_log)
    started_s = time.monotonic()
    for number in range(100):
        log.write([event(number)])
    log.close()
    assert time.monotonic() - started_s < 5
    lost = value(metrics, "lost")
    assert lost is not None
    assert lost >= 96
    with pipe.open("rb") as reader:
        assert b"cmpl-0" in reader.readline()
