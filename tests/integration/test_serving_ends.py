"""How requests end before they are done: by a fault, a time-out, an abort, or a client that leaves; over HTTP."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from leeway_core.headers import TIMEOUT_HEADER, TOOL_WAIT_HEADER
from openai import OpenAI, Stream
from openai.types import Completion
from sabotage import Sabotage
from serving import MODEL, Answer, Running, http, pod, push, read_knobs, tiny_model

LONG: dict[str, Any] = {"model": MODEL, "prompt": "Hello", "max_tokens": 4000, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def sabotage(tmp_path_factory: pytest.TempPathFactory) -> Sabotage:
    return Sabotage(tmp_path_factory.mktemp("sabotage") / "flags")


@pytest.fixture(scope="module")
def server(model: Path, sabotage: Sabotage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pod(model, tmp_path_factory.mktemp("pod"), environment=sabotage.environment) as running:
        yield running


@contextmanager
def streaming(server: Running, headers: dict[str, str] | None = None) -> Iterator[Stream[Completion]]:
    """A long answer that has begun."""
    with (
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        client.completions.create(
            model=MODEL,
            prompt="Hello",
            max_tokens=4000,
            stream=True,
            extra_body={"ignore_eos": True},
            extra_headers=headers,
        ) as stream,
    ):
        next(stream)
        yield stream


@contextmanager
def asked(server: Running, headers: dict[str, str] | None = None, **fields: object) -> Iterator[Future[Answer]]:
    """A long answer, not streamed, on its way."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(http, "POST", f"{server.url}/v1/completions", {**LONG, **fields}, headers)


def series(server: Running, name: str) -> float:
    return server.metrics(server.url)[f"leeway_engine_{name}"]


def wait_for(server: Running, name: str, reached: Callable[[float], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not reached(value := series(server, name)):
        assert time.monotonic() < deadline_s, f"{name} stays at {value}"
        time.sleep(0.005)


def check_nothing_is_left(server: Running) -> None:
    for name in ("running_requests", "waiting_requests", 'kv_blocks{state="used"}', "swap_blocks"):
        wait_for(server, name, lambda value: value == 0)


def ended(server: Running, reason: str) -> float:
    return series(server, f'requests_total{{finish_reason="{reason}"}}')


def decoded(server: Running) -> float:
    return series(server, 'scheduled_tokens_total{phase="decode"}')


def test_a_pod_is_ready_once_it_has_run_a_prefill_and_a_decode(model: Path, tmp_path: Path) -> None:
    with pod(model, tmp_path) as fresh:
        http("POST", f"{fresh.url}/v1/completions", {"model": MODEL, "prompt": "Hello", "max_tokens": 1})
        assert series(fresh, 'scheduled_tokens_total{phase="prefill"}') == len("Hello") + 1
        assert decoded(fresh) == 1


def test_a_failed_iteration_ends_its_requests_with_an_error_and_the_pod_serves_on(
    server: Running, sabotage: Sabotage
) -> None:
    failures, errors = series(server, "failed_iterations_total"), ended(server, "error")
    with streaming(server) as stream, asked(server) as whole:
        wait_for(server, "running_requests", lambda running: running == 2)
        with sabotage.holding():
            failing = sabotage.failing()
            failing.__enter__()
        with pytest.raises(openai.APIError, match="failed to compute this request") as broken:
            list(stream)
        assert broken.value.code == "engine_failed"
        answer = whole.result()
        failing.__exit__(None, None, None)
    assert (answer.status, answer.json["error"]["type"]) == (500, "server_error")
    assert answer.json["error"]["code"] == "engine_failed"
    assert http("POST", f"{server.url}/v1/completions", {**LONG, "max_tokens": 20}).status == 200
    assert series(server, "failed_iterations_total") == failures + 1
    assert ended(server, "error") == errors + 2
    check_nothing_is_left(server)


def test_a_pod_whose_iterations_keep_failing_ends(model: Path, tmp_path: Path) -> None:
    sabotage = Sabotage(tmp_path / "flags")
    with pod(model, tmp_path, environment=sabotage.environment) as failing, sabotage.failing():
        answers = [http("POST", f"{failing.url}/v1/completions", LONG) for _ in range(3)]
        codes = [(answer.status, answer.json["error"]["code"]) for answer in answers]
        assert codes == [(500, "engine_failed"), (500, "engine_failed"), (500, "engine_died")]
        assert failing.process.wait(30) == 1


def test_a_time_out_in_decode_ends_the_stream_with_an_error_and_costs_one_iteration_at_most(
    server: Running, sabotage: Sabotage
) -> None:
    before = ended(server, "timeout")
    with streaming(server, {TIMEOUT_HEADER: "0.5"}) as stream:
        with sabotage.holding():
            wait_for(server, 'requests_total{finish_reason="timeout"}', lambda count: count == before + 1)
            tokens = decoded(server)
        with pytest.raises(openai.APIError, match=r"not done 0\.5 s after its arrival") as broken:
            list(stream)
        assert broken.value.code == "timed_out"
    check_nothing_is_left(server)
    assert decoded(server) <= tokens + 1


def test_a_time_out_in_prefill_is_a_408_even_where_an_iteration_takes_longer(
    server: Running, sabotage: Sabotage
) -> None:
    refused = sum(value for name, value in server.metrics(server.url).items() if "rejections_total" in name)
    with asked(server, {TIMEOUT_HEADER: "0.3"}, prompt="x" * 2000, max_tokens=5) as whole, sabotage.holding():
        answer = whole.result()
    assert (answer.status, answer.json["error"]["type"]) == (408, "timeout_error")
    assert answer.json["error"]["code"] == "timed_out"
    check_nothing_is_left(server)
    metrics = server.metrics(server.url)
    assert sum(value for name, value in metrics.items() if "rejections_total" in name) == refused


def test_a_time_out_in_the_queue_is_a_408_and_not_sent_again_by_openais_client(server: Running) -> None:
    knobs = read_knobs(server)["accepted"]
    one = {**knobs, "generation": knobs["generation"] + 1, "runningSequences": 1}
    assert push(server, one).status == 200
    with streaming(server):
        arrivals, queued = series(server, "arrivals_total"), series(server, 'cancels_total{phase="waiting"}')
        with (
            OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
            pytest.raises(openai.APIStatusError, match="not done") as late,
        ):
            client.completions.create(model=MODEL, prompt="Hello", extra_headers={TIMEOUT_HEADER: "0.2"})
        assert late.value.status_code == 408
        assert series(server, "arrivals_total") == arrivals + 1
        wait_for(server, 'cancels_total{phase="waiting"}', lambda count: count == queued + 1)
    assert push(server, {**knobs, "generation": one["generation"] + 1}).status == 200
    check_nothing_is_left(server)


def test_a_time_out_ends_the_wait_for_a_tool_too(server: Running) -> None:
    headers = {TIMEOUT_HEADER: "2", TOOL_WAIT_HEADER: "600"}
    began_s = time.monotonic()
    answer = http("POST", f"{server.url}/v1/completions", {**LONG, "prompt": "x" * 64, "max_tokens": 5}, headers)
    assert answer.status == 200
    assert series(server, "tool_waits") == 1 or time.monotonic() - began_s > 2
    wait_for(server, "tool_waits", lambda waits: waits == 0)
    check_nothing_is_left(server)


@pytest.mark.parametrize("value", ["0", "soon"])
def test_a_time_out_that_is_none_is_refused_and_counted(server: Running, value: str) -> None:
    before = series(server, 'rejections_total{reason="invalid"}')
    answer = http("POST", f"{server.url}/v1/completions", LONG, {TIMEOUT_HEADER: value})
    assert (answer.status, answer.json["error"]["param"]) == (400, TIMEOUT_HEADER)
    assert series(server, 'rejections_total{reason="invalid"}') == before + 1


def test_an_abort_says_what_it_ended_has_its_effect_and_ends_the_stream_with_an_error(
    server: Running, sabotage: Sabotage
) -> None:
    before = ended(server, "abort")
    with streaming(server) as stream:
        request_id = next(stream).id
        path = f"{server.url}/v1/requests/{request_id}/abort"
        with sabotage.holding():
            tokens = decoded(server)
            answer = http("POST", path)
            again = http("POST", path)
        with pytest.raises(openai.APIError, match="aborted") as broken:
            list(stream)
        assert broken.value.code == "aborted"
    assert (answer.status, answer.json["id"], answer.json["aborted"]) == (200, request_id, True)
    assert (answer.json["prompt_tokens"], answer.json["output_tokens"]) >= (5, 2)
    assert (again.status, again.json["error"]["code"]) == (404, "request_not_found")
    check_nothing_is_left(server)
    assert decoded(server) <= tokens + 1
    assert ended(server, "abort") == before + 1


def test_an_answer_that_is_not_streamed_is_a_499_when_it_is_aborted(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    with pod(model, tmp_path, engine={"event_share": 1.0}, event_log=log) as logging, asked(logging) as whole:
        wait_for(logging, "running_requests", lambda running: running == 1)
        # The id is the one in the event log, which a thread writes.
        while not (log.exists() and '"request_id":"' in log.read_text()):
            time.sleep(0.01)
        request_id = log.read_text().split('"request_id":"')[1].split('"')[0]
        assert http("POST", f"{logging.url}/v1/requests/{request_id}/abort").status == 200
        answer = whole.result()
        assert (answer.status, answer.json["error"]["code"]) == (499, "aborted")
        check_nothing_is_left(logging)


def test_an_abort_of_nobody_is_a_404_in_openais_shape(server: Running) -> None:
    answer = http("POST", f"{server.url}/v1/requests/cmpl-unknown/abort")
    assert (answer.status, set(answer.json["error"])) == (404, {"message", "type", "param", "code"})
    finished = http("POST", f"{server.url}/v1/completions", {**LONG, "max_tokens": 2}).json["id"]
    assert http("POST", f"{server.url}/v1/requests/{finished}/abort").status == 404


def test_a_client_that_leaves_in_mid_stream_costs_one_iteration_at_most(server: Running, sabotage: Sabotage) -> None:
    before = ended(server, "cancel")
    with streaming(server) as stream, sabotage.holding():
        tokens = decoded(server)
        stream.close()
        wait_for(server, 'requests_total{finish_reason="cancel"}', lambda count: count == before + 1)
    check_nothing_is_left(server)
    assert decoded(server) <= tokens + 1


def test_a_pod_that_schedules_nothing_while_work_waits_is_not_ready_and_says_why(model: Path, tmp_path: Path) -> None:
    sabotage = Sabotage(tmp_path / "flags")
    with pod(model, tmp_path, environment=sabotage.environment, unready_after_s=2.0) as starved:
        with sabotage.starving():
            answers: list[Answer] = []
            body = {**LONG, "max_tokens": 5}
            waiting = threading.Thread(
                target=lambda: answers.append(http("POST", f"{starved.url}/v1/completions", body))
            )
            waiting.start()
            starved.wait_until(f"{starved.url}/readyz", 503, longest_s=60)
            reason = http("GET", f"{starved.url}/readyz").json["reason"]
            assert "the engine has scheduled nothing for" in reason
            assert "1 requests in flight" in reason
            assert series(starved, "stalled") == 1
        waiting.join(60)
        assert answers[0].status == 200
        starved.wait_until(f"{starved.url}/readyz", 200, longest_s=60)
