"""OpenAI's API of a pod: real processes, a tiny model."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from openai import OpenAI
from serving import MODEL, Answer, Running, http, pod, tiny_model

MESSAGES: Any = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("pod")
    with pod(tiny_model(folder / "model"), folder, max_body_bytes=100_000) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def complete(server: Running, **fields: object) -> Answer:
    return http("POST", f"{server.url}/v1/completions", {"model": MODEL, "prompt": "Hello", **fields})


def events(server: Running, path: str = "completions", **fields: object) -> list[Any]:
    body = {"model": MODEL, "stream": True, "max_tokens": 20, "temperature": 0, **fields}
    body |= {"prompt": "Hello"} if path == "completions" else {"messages": MESSAGES}
    answer = http("POST", f"{server.url}/v1/{path}", body)
    assert answer.headers["Content-Type"] == "text/event-stream"
    *data, end = answer.text.removesuffix("\n\n").split("\n\n")
    assert end == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in data]


def test_the_openai_client_lists_the_model(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_the_openai_client_completes_the_same_text_streamed_or_whole(client: OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt="Hello", max_tokens=40, temperature=0)
    stream = client.completions.create(model=MODEL, prompt="Hello", max_tokens=40, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text != ""
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (5, 40, 45)


def test_the_openai_client_chats_the_same_text_streamed_or_whole(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_completion_tokens=30, temperature=0)
    stream = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        max_completion_tokens=30,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    usage, of_whole = chunks[-1].usage, whole.usage
    assert usage
    assert of_whole
    assert (usage.prompt_tokens, usage.completion_tokens) == (of_whole.prompt_tokens, of_whole.completion_tokens)
    assert usage.prompt_tokens_details
    assert usage.prompt_tokens_details.cached_tokens, "the prompt was here before"


def test_a_chat_is_the_completion_of_its_template(client: OpenAI) -> None:
    chat = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=20, temperature=0)
    written = client.completions.create(model=MODEL, prompt="user: Hello\nassistant:", max_tokens=20, temperature=0)
    assert chat.choices[0].message.content == written.choices[0].text


def test_a_prompt_may_be_tokens(server: Running) -> None:
    from_tokens = complete(server, prompt=[39, 68, 75, 75, 78], temperature=0)
    assert from_tokens.json["choices"][0]["text"] == complete(server, temperature=0).json["choices"][0]["text"]


def test_seeds_fix_the_draw_and_differ(server: Running) -> None:
    texts = [complete(server, seed=seed, max_tokens=30).json["choices"][0]["text"] for seed in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]


def test_top_k_of_one_is_greedy(server: Running) -> None:
    greedy = complete(server, temperature=0).json["choices"][0]["text"]
    assert complete(server, temperature=2, top_k=1).json["choices"][0]["text"] == greedy


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_before_itself(server: Running, stream: bool) -> None:
    full = complete(server, temperature=0, max_tokens=60).json["choices"][0]["text"]
    stop = full[12:16]
    if stream:
        chunks = events(server, max_tokens=60, stop=stop)
        text, reason = "".join(c["choices"][0]["text"] for c in chunks), chunks[-1]["choices"][0]["finish_reason"]
    else:
        choice = complete(server, temperature=0, max_tokens=60, stop=["never comes", stop]).json["choices"][0]
        text, reason = choice["text"], choice["finish_reason"]
    assert (text, reason) == (full[: full.index(stop)], "stop")


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_each_chunk_has_a_finish_reason_and_only_the_last_is_not_null(server: Running, path: str) -> None:
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in events(server, path)]
    assert reasons == [*[None] * (len(reasons) - 1), "length"]


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_the_models_own_end_is_the_one_finish_reason_and_no_text(server: Running, path: str) -> None:
    # Drawn from all tokens alike, the end comes long before the last token that is allowed.
    fields = {"max_tokens": 3000, "temperature": 2, "seed": 1, "logit_bias": {"257": 4}}
    chunks = events(server, path, **fields, stream_options={"include_usage": True})
    *chunks, usage = chunks
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [*[None] * (len(reasons) - 1), "stop"]
    assert 1 < usage["usage"]["completion_tokens"] < 3000
    if path == "completions":
        whole = complete(server, **fields).json
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert whole["choices"][0]["text"] == "".join(chunk["choices"][0]["text"] for chunk in chunks)


def test_a_repeated_request_finds_its_prompt_and_gets_the_very_same_answer(server: Running) -> None:
    fields = {"prompt": "Say it again, Sam. " * 12, "temperature": 0, "max_tokens": 40, "logprobs": 2}
    first, second = (complete(server, **fields).json for _ in range(2))
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (first, second)]
    assert cached[0] == 0 < cached[1]
    assert first["choices"][0]["text"] == second["choices"][0]["text"]
    assert first["choices"][0]["logprobs"]["tokens"] == second["choices"][0]["logprobs"]["tokens"]


@pytest.mark.parametrize(("options", "expected"), [({}, 0), ({"include_usage": True}, 1)])
def test_usage_comes_once_and_only_if_asked_for(server: Running, options: dict[str, bool], expected: int) -> None:
    chunks = events(server, stream_options=options)
    usages = [chunk for chunk in chunks if chunk.get("usage")]
    assert len(usages) == expected
    assert all(chunk["choices"] == [] and chunk is chunks[-1] for chunk in usages)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"temperature": -1}, 400, "temperature"),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"top_k": 0.01}, 400, "top_k"),
        ({"seed": 2**70}, 400, "seed"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 4096}, 400, "prompt"),
        ({"max_tokens": 2**80}, 400, "prompt"),
        ({"prompt": ""}, 400, None),
        ({"prompt": [[-1]]}, 400, "prompt"),
        ({"prompt": [-1]}, 400, "prompt"),
        ({"prompt": [99999]}, 400, None),
        ({"prompt": "x" * 4096}, 400, "prompt"),
        ({"prompt": "x" * 50_000}, 400, "prompt"),
        ({"prompt": "x" * 200_000}, 413, None),
        ({"n": 2}, 400, "n"),
        ({"logprobs": 300}, 400, "logprobs"),
        ({"logit_bias": {"99999": 1}}, 400, None),
        ({"logit_bias": {str(token): 1 for token in range(2000)}}, 400, "logit_bias"),
        ({"echo": True}, 400, "echo"),
        ({"prompt_logprobs": 0}, 400, "prompt_logprobs"),
        ({"prompt_logprobs": 5}, 400, "prompt_logprobs"),
        ({"logit_bias": {"AI": -100}}, 400, "logit_bias"),
        ({"stop": ["x" * 10_000]}, 400, "stop"),
        ({"stop": [str(i) for i in range(10_000)]}, 400, "stop"),
        ({"stop": ""}, 400, "stop"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
        ({"no_such_field": 1}, 400, "no_such_field"),
    ],
)
def test_a_bad_request_is_refused_in_openais_shape_and_harms_nobody(
    server: Running, fields: dict[str, object], status: int, param: str | None
) -> None:
    answer = complete(server, **fields)
    assert (answer.status, answer.json["error"]["param"]) == (status, param)
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert answer.json["error"]["message"]
    assert complete(server).status == 200


def test_what_the_model_card_advertises_is_what_a_request_may_have(tmp_path: Path) -> None:
    # The KV cache holds less than the context.
    with pod(tiny_model(tmp_path / "model"), tmp_path, engine={"kv_blocks": 8}) as small:
        (card,) = http("GET", f"{small.url}/v1/models").json["data"]
        most = card["max_model_len"]
        assert most == 8 * 16
        fitting = complete(small, prompt=[65] * (most - 1), max_tokens=1)
        assert (fitting.status, fitting.json["usage"]["prompt_tokens"]) == (200, most - 1)
        for prompt in ([65] * most, [65] * (most + 1)):
            refused = complete(small, prompt=prompt, max_tokens=None)
            assert (refused.status, refused.json["error"]["code"]) == (400, "kv_exceeded")
            assert "-" not in refused.json["error"]["message"], "no count is negative"
        beyond = complete(small, prompt=[65] * 4096, max_tokens=1)
        assert (beyond.status, beyond.json["error"]["code"]) == (400, "context_length_exceeded")
        for reason, count in (("kv_exceeded", 2), ("context_length_exceeded", 1)):
            assert small.metrics(small.url)[f'leeway_engine_rejections_total{{reason="{reason}"}}'] == count


def test_without_max_tokens_a_completion_has_sixteen(server: Running) -> None:
    for fields in ({}, {"max_tokens": None}):
        assert complete(server, ignore_eos=True, **fields).json["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"model": "model", "prompt": "\xff\xfe"}', b'{"model": "model", "prompt": "\\ud800"}']
)
def test_a_body_that_is_no_json_object_in_utf8_is_refused(server: Running, body: bytes) -> None:
    assert http("POST", f"{server.url}/v1/completions", body).status == 400
    assert complete(server).status == 200


def test_unknown_paths_and_methods_are_refused_in_openais_shape(server: Running) -> None:
    for method, path, status in (("GET", "/v1/embeddings", 404), ("GET", "/v1/completions", 405)):
        answer = http(method, server.url + path)
        assert (answer.status, answer.json["error"]["type"]) == (status, "invalid_request_error")


def test_a_refusal_raises_the_openai_clients_own_errors(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="Hello")
    with pytest.raises(openai.BadRequestError, match="may have 4096 tokens"):
        client.completions.create(model=MODEL, prompt="Hello", max_tokens=5000, stream=True)


def test_a_client_that_goes_away_frees_all_it_held(server: Running) -> None:
    for stream in (True, False):
        before = server.metrics(server.url)['leeway_engine_requests_total{finish_reason="cancel"}']
        body = json.dumps({"model": MODEL, "prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": stream})
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: pod\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall((head + body).encode())
            wait_for(server, "leeway_engine_running_requests", 1)
        wait_for(server, "leeway_engine_running_requests", 0)
        wait_for(server, 'leeway_engine_kv_blocks{state="used"}', 0)
        wait_for(server, 'leeway_engine_requests_total{finish_reason="cancel"}', before + 1)


def test_a_slow_reader_delays_nobody_and_gets_the_whole_text(server: Running) -> None:
    fields = {"max_tokens": 3000, "ignore_eos": True, "temperature": 0}
    whole = complete(server, **fields).json["choices"][0]["text"]
    body = json.dumps({"model": MODEL, "prompt": "Hello", "stream": True, **fields})
    address = urlsplit(server.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((address.hostname, address.port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: pod\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        wait_for(server, "leeway_engine_running_requests", 1)
        assert complete(server, max_tokens=50).status == 200
        # The loop is done with the request long before the client has read it.
        wait_for(server, "leeway_engine_running_requests", 0)
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    chunks = [line.removeprefix(b"data: ") for line in received.splitlines() if line.startswith(b"data: {")]
    assert "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks) == whole


def wait_for(server: Running, series: str, value: float) -> None:
    deadline_s = time.monotonic() + 60
    while server.metrics(server.url)[series] != value:
        assert time.monotonic() < deadline_s, f"{series} does not become {value}"
        time.sleep(0.01)
