"""The processes of a pod: they live, drain and die together, and take knobs while they work."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from leeway_core.policies import Policies
from openai import OpenAI
from serving import MODEL, Running, http, pod, push, read_knobs, status_of, tiny_model

USUAL = {"policies": Policies().model_dump(mode="json", by_alias=True)}
KNOBS = {"generation": 2, "tokenBudget": 64, "chunkSize": 32, "runningSequences": 8, **USUAL}
BOOT = {"generation": 1, "tokenBudget": 256, "chunkSize": 256, "runningSequences": 32, **USUAL}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def server(model: Path, tmp_path: Path) -> Iterator[Running]:
    with pod(model, tmp_path) as running:
        yield running


@contextmanager
def streaming(server: Running, max_tokens: int) -> Iterator[Iterator[Any]]:
    """A stream that has begun."""
    with (
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        client.completions.create(
            model=MODEL, prompt="Hello", max_tokens=max_tokens, stream=True, extra_body={"ignore_eos": True}
        ) as stream,
    ):
        chunks = iter(stream)
        next(chunks)
        yield chunks


def exit_code(process: subprocess.Popen[bytes]) -> int:
    return process.wait(30)


def wait_gone(pid: int) -> None:
    deadline_s = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline_s, f"process {pid} is still there"
        time.sleep(0.02)


def test_a_stopping_pod_ends_its_streams_and_takes_nothing_new(server: Running) -> None:
    loop_pid = server.loop_pid
    with streaming(server, 2000) as chunks:
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(f"{server.url}/readyz", 503)
        refused = http("POST", f"{server.url}/v1/completions", {"model": MODEL, "prompt": "x"})
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert status_of(f"{server.url}/healthz") == 200
        assert list(chunks)[-1].choices[0].finish_reason == "length"
    assert exit_code(server.process) == 0
    wait_gone(loop_pid)


def test_a_signal_to_the_whole_group_drains_just_the_same(server: Running) -> None:
    with streaming(server, 1000) as chunks:
        os.kill(server.loop_pid, signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        assert list(chunks)[-1].choices[0].finish_reason == "length"
    assert exit_code(server.process) == 0


def test_a_pod_whose_loop_dies_tells_its_clients_and_exits(server: Running) -> None:
    with streaming(server, 4000) as chunks:
        os.kill(server.loop_pid, signal.SIGKILL)
        with pytest.raises(openai.APIError, match="engine of this pod died"):
            list(chunks)
    assert exit_code(server.process) == 1


def test_a_pod_whose_loop_hangs_says_so_and_one_that_hangs_for_good_ends(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    bounds = {"unready_after_s": 2.0, "kill_after_s": 8.0}
    with (
        pod(model, tmp_path, engine={"event_share": 1.0}, event_log=log, **bounds) as server,
        streaming(server, 4000) as chunks,
    ):
        loop_pid = server.loop_pid
        os.kill(loop_pid, signal.SIGSTOP)
        server.wait_until(f"{server.url}/readyz", 503, longest_s=60)
        os.kill(loop_pid, signal.SIGCONT)
        server.wait_until(f"{server.url}/readyz", 200, longest_s=60)
        assert server.metrics(server.url)["leeway_engine_stalled"] == 0
        answer_id = next(chunks).id
        os.kill(loop_pid, signal.SIGSTOP)
        server.wait_until(f"{server.url}/readyz", 503, longest_s=60)
        told = http("GET", f"{server.url}/readyz").json
        assert told["ready"] is False
        assert "the engine loop has said nothing for" in told["reason"]
        assert server.metrics(server.url)["leeway_engine_stalled"] == 1
        assert status_of(f"{server.url}/healthz") == 200
        refused = http("POST", f"{server.url}/v1/completions", {"model": MODEL, "prompt": "x"})
        assert (refused.status, refused.json["error"]["code"]) == (503, "not_ready")
        with pytest.raises(openai.APIError, match="engine of this pod died"):
            list(chunks)
        assert exit_code(server.process) == 1
    wait_gone(loop_pid)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["event"] for event in events] == ["arrived", "admitted", "chunk", "first_token"]
    assert {event["request_id"] for event in events} == {answer_id}, "what a killed loop had told is written"
    assert "Hello" not in log.read_text()


def test_a_loop_whose_api_dies_is_no_orphan(server: Running) -> None:
    loop_pid = server.loop_pid
    server.process.kill()
    wait_gone(loop_pid)


def test_a_model_that_cannot_be_loaded_ends_the_pod(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    (model / "config.json").write_text(json.dumps({"model_type": "unheard-of"}))
    with pytest.raises(AssertionError, match="exited with 1"), pod(model, tmp_path):
        pass


def test_knobs_take_effect_and_are_read_back(server: Running) -> None:
    assert read_knobs(server)["enforced"] == BOOT
    answer = push(server, KNOBS)
    assert (answer.status, answer.json["accepted"], answer.json["refusal"]) == (200, KNOBS, None)
    with streaming(server, 5) as chunks:
        list(chunks)
    assert read_knobs(server)["enforced"] == KNOBS
    assert push(server, KNOBS).status == 200, "a push may be repeated"


@pytest.mark.parametrize(
    ("change", "status", "why"),
    [
        ({"generation": 1}, 409, "generation 1 is not above"),
        ({"generation": 1, "chunkSize": 8}, 409, "generation 1 is not above"),
        ({"tokenBudget": 257}, 422, "over this pod's ceiling 256"),
        ({"chunkSize": 1000}, 422, "over this pod's ceiling 256"),
        ({"runningSequences": 33}, 422, "over this pod's ceiling 32"),
        ({"tokenBudget": 4}, 422, "under running_sequences 8"),
        ({"chunkSize": 0}, 400, "chunkSize"),
        ({"chunkSize": "32"}, 400, "chunkSize"),
        ({"color": "red"}, 400, "color"),
    ],
)
def test_knobs_that_do_not_fit_change_nothing_and_the_answer_says_why(
    knob_server: Running, change: dict[str, object], status: int, why: str
) -> None:
    answer = push(knob_server, KNOBS | change)
    assert answer.status == status
    assert why in answer.json["refusal"]
    assert answer.json["accepted"] == answer.json["enforced"] == BOOT == read_knobs(knob_server)["accepted"]


@pytest.fixture(scope="module")
def knob_server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pod(model, tmp_path_factory.mktemp("knobs")) as running:
        yield running


def test_a_wrong_token_changes_nothing_and_learns_nothing(knob_server: Running) -> None:
    answer = push(knob_server, KNOBS, token="wrong")
    assert (answer.status, set(answer.json)) == (401, {"refusal"})
    assert http("GET", f"{knob_server.side_url}/v1/knobs").status == 401
    assert read_knobs(knob_server)["accepted"] == BOOT


def test_a_pod_boots_with_the_knobs_it_is_given(model: Path, tmp_path: Path) -> None:
    with pod(model, tmp_path, engine={"knobs": KNOBS}) as server:
        assert read_knobs(server)["enforced"] == KNOBS


def test_a_push_is_answered_while_an_iteration_runs_and_holds_for_the_next(model: Path, tmp_path: Path) -> None:
    ceilings = {"token_budget": 1024, "chunk_size": 1024, "running_sequences": 8}
    boot = {"generation": 1, **ceilings}
    with pod(model, tmp_path, engine={"ceilings": ceilings, "knobs": boot, "kv_blocks": 1024}) as server:
        stop = threading.Event()

        def load(number: int) -> None:
            draw = random.Random(number)
            while not stop.is_set():
                # Tokens of its own: a prompt that begins like another is found in KV, and makes short iterations.
                prompt = [draw.randrange(256) for _ in range(4000)]
                body = {"model": MODEL, "prompt": prompt, "max_tokens": 2, "ignore_eos": True}
                http("POST", f"{server.url}/v1/completions", body)

        loads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for thread in loads:
            thread.start()
        try:
            for generation in range(2, 30):
                sizes = {"tokenBudget": 1024 - generation, "chunkSize": 1024, "runningSequences": 8}
                answer = push(server, {"generation": generation, **sizes})
                assert answer.status == 200
                while (now := read_knobs(server))["enforced"]["generation"] < generation:
                    time.sleep(0.002)
                assert now["enforcedSincePlan"] - answer.json["plans"] <= 1
            series = server.metrics(server.url)
            iterations = series["leeway_engine_iteration_seconds_count"]
            assert series["leeway_engine_chunk_tokens_sum"] / iterations > 500, "iterations are long"
        finally:
            stop.set()
            for thread in loads:
                thread.join()
