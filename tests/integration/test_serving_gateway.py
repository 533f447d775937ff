"""A gateway before real pods: what clients see, and how it is counted."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from serving import HOST, MODEL, Running, free_port, gateway, http, pod, tiny_model

LOOSE = {"name": "loose", "ttftMs": 600_000, "itlMs": 600_000}
TIGHT = {"name": "tight", "ttftMs": 1, "itlMs": 1}
BATCH = {"name": "batch", "deadlineSeconds": 3600}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def pods(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Running]]:
    with pod(model, tmp_path_factory.mktemp("a")) as first, pod(model, tmp_path_factory.mktemp("b")) as second:
        yield [first, second]


@pytest.fixture
def objectives(tmp_path: Path) -> Path:
    file = tmp_path / "objectives.json"
    file.write_text(json.dumps([LOOSE, TIGHT, BATCH]))
    return file


@pytest.fixture
def front(pods: list[Running], objectives: Path) -> Iterator[Running]:
    with gateway([pod.url for pod in pods], objectives) as running:
        yield running


def client(front: Running) -> OpenAI:
    return OpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0)


def complete(front: Running, objective: str | None = None, **fields: object) -> Any:
    headers = {"x-leeway-objective": objective} if objective else {}
    body = {"model": MODEL, "prompt": "Hello", "ignore_eos": True, **fields}
    return http("POST", f"{front.url}/v1/completions", body, headers)


def verdicts(front: Running, objective: str, result: str, reason: str = "") -> float:
    series = f'leeway_gateway_verdicts_total{{objective="{objective}",reason="{reason}",result="{result}"}}'
    return front.metrics(front.side_url)[series]


def wait_for_verdict(front: Running, objective: str, result: str, reason: str = "") -> None:
    deadline_s = time.monotonic() + 30
    while not verdicts(front, objective, result, reason):
        assert time.monotonic() < deadline_s, front.metrics(front.side_url)
        time.sleep(0.02)


def stream(server: OpenAI, max_tokens: int) -> Any:
    return server.completions.create(
        model=MODEL, prompt="Hello", max_tokens=max_tokens, stream=True, temperature=0, extra_body={"ignore_eos": True}
    )


def test_the_openai_client_gets_the_pods_text_streamed_and_whole(front: Running) -> None:
    with client(front) as openai_client:
        assert [model.id for model in openai_client.models.list()] == [MODEL]
        whole = openai_client.completions.create(model=MODEL, prompt="Hello", max_tokens=40, temperature=0)
        chunks = openai_client.completions.create(
            model=MODEL, prompt="Hello", max_tokens=40, temperature=0, stream=True
        )
        assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text != ""


def test_requests_go_to_both_pods(front: Running, pods: list[Running]) -> None:
    def finished(running: Running) -> float:
        return running.metrics(running.url)['leeway_engine_requests_total{finish_reason="length"}']

    before = [finished(running) for running in pods]
    for _ in range(4):
        assert complete(front).status == 200
    assert [finished(running) - old for running, old in zip(pods, before, strict=True)] == [2, 2]


def test_every_request_is_counted_met_or_missed_with_the_reason(front: Running) -> None:
    series = front.metrics(front.side_url)
    counted = {name: value for name, value in series.items() if "_total" in name or "_count" in name}
    assert counted
    assert not any(counted.values()), "all series start at 0"
    complete(front, stream=True)
    complete(front, "tight", stream=True)
    complete(front, "batch")
    assert complete(front, "loose", temperature=-1).status == 400
    assert complete(front, "unheard-of").status == 400
    assert verdicts(front, "loose", "met") == 1
    assert verdicts(front, "tight", "missed", "ttft") == 1
    assert verdicts(front, "batch", "met") == 1
    series = front.metrics(front.side_url)
    total = sum(value for name, value in series.items() if name.startswith("leeway_gateway_verdicts_total"))
    assert total == 3, "a request at fault itself is neither met nor missed"
    assert series['leeway_gateway_bounds_total{bound="ttft",objective="tight",result="missed"}'] == 1
    assert 0 < series['leeway_gateway_itl_seconds_count{objective="loose"}'] < 16
    assert series['leeway_gateway_ttft_seconds_count{objective="loose"}'] == 1


def test_objectives_change_while_it_serves_and_a_bad_file_changes_nothing(front: Running, objectives: Path) -> None:
    objectives.write_text(json.dumps([{"name": "new", "ttftMs": 600_000}]))
    deadline_s = time.monotonic() + 20
    while complete(front, "new").status != 200:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert verdicts(front, "new", "met") == 1
    objectives.write_text("[")
    while front.metrics(front.side_url)["leeway_gateway_objectives_stale"] == 0:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert complete(front, "new").status == 200


def test_a_client_that_goes_away_frees_the_pod_and_counts_apart(front: Running, pods: list[Running]) -> None:
    with client(front) as openai_client:
        chunks = stream(openai_client, 4000)
        next(iter(chunks))
        chunks.close()
    wait_for_verdict(front, "loose", "cancelled")
    deadline_s = time.monotonic() + 30
    for running in pods:
        while running.metrics(running.url)['leeway_engine_kv_blocks{state="used"}']:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


def test_a_pod_killed_in_mid_stream_gives_an_error_and_the_next_request_goes_elsewhere(
    model: Path, pods: list[Running], objectives: Path, tmp_path: Path
) -> None:
    with pod(model, tmp_path) as doomed, gateway([doomed.url], objectives) as front, client(front) as openai_client:
        chunks = iter(stream(openai_client, 4000))
        next(chunks)
        doomed.process.kill()
        with pytest.raises(openai.APIError, match="broke off in mid-stream"):
            list(chunks)
        assert verdicts(front, "loose", "missed", "failed") == 1
    with gateway([doomed.url, pods[0].url], objectives) as front:
        assert [complete(front).status for _ in range(3)] == [200] * 3


def test_without_a_pod_requests_wait_a_while_and_then_get_503(objectives: Path) -> None:
    with gateway([f"http://{HOST}:{free_port()}"], objectives, wait_s=1) as front:
        started_s = time.monotonic()
        answer = complete(front)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json["error"]["type"] == "overloaded_error"
        assert 1 <= time.monotonic() - started_s < 5
        assert verdicts(front, "loose", "missed", "rejected") == 1


def test_a_request_waits_for_a_pod_that_is_on_its_way(model: Path, objectives: Path, tmp_path: Path) -> None:
    port = free_port()
    with gateway([f"http://{HOST}:{port}"], objectives, wait_s=60) as front:
        statuses: list[int] = []
        waiting = threading.Thread(target=lambda: statuses.append(complete(front).status))
        waiting.start()
        with pod(model, tmp_path, port=port):
            waiting.join()
    assert statuses == [200]


def test_a_stopping_gateway_ends_its_streams(pods: list[Running], objectives: Path) -> None:
    with gateway([pods[0].url], objectives) as front, client(front) as openai_client:
        chunks = iter(stream(openai_client, 2000))
        next(chunks)
        front.process.send_signal(signal.SIGTERM)
        front.wait_until(f"{front.side_url}/readyz", 503)
        assert list(chunks)[-1].choices[0].finish_reason == "length"
        assert front.process.wait(30) == 0
