"""Sampling fields of OpenAI's API, and log-probabilities as it writes them, streamed or whole."""

import asyncio
from typing import Any

import pytest
from byte_tokenizer import END, TOKENIZER
from leeway_engine.messages import GenerationRequest, Sampling, TokenEvent, TokenLogprobs
from leeway_engine.scheduling.request import FinishReason
from leeway_engine.server.answers import ChatAnswer, CompletionAnswer
from leeway_engine.server.api import sampling_of
from leeway_engine.server.channel import Add, Stepped, frame, read_from_loop
from leeway_engine.server.detokenizer import Detokenizer
from leeway_engine.server.generation import Piece, pieces
from leeway_engine.server.logprobs import ChatLogprobs, CompletionLogprobs
from leeway_engine.server.requests import ChatBody, CompletionBody
from leeway_engine.server.stop_strings import StopStrings
from leeway_engine.server.token_stream import TokenStream
from pydantic import ValidationError


def completion(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"model": "m", "prompt": "x", **fields})


def chat(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})


def logprobs_of(text: str, logprob: float = -0.5) -> TokenLogprobs:
    (token_id,) = TOKENIZER.encode(text).ids
    return TokenLogprobs(token_id, logprob, (token_id, TOKENIZER.encode("z").ids[0]), (logprob, -2.0))


def test_the_fields_reach_the_sampler() -> None:
    fields = {
        "min_p": 0.1,
        "presence_penalty": -1,
        "frequency_penalty": 2,
        "repetition_penalty": 1.1,
        "logit_bias": {"7": -100, "9": 1.5},
    }
    expected = Sampling(
        min_p=0.1,
        presence_penalty=-1,
        frequency_penalty=2,
        repetition_penalty=1.1,
        logit_bias={7: -100.0, 9: 1.5},
        logprobs=2,
    )
    assert sampling_of(completion(**fields, logprobs=2)) == expected
    assert sampling_of(chat(**fields, logprobs=True, top_logprobs=2)) == expected


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (completion(), None),
        (completion(logprobs=0), 0),
        (completion(logprobs=5), 5),
        (chat(), None),
        (chat(logprobs=False), None),
        (chat(logprobs=True), 0),
        (chat(logprobs=True, top_logprobs=20), 20),
    ],
)
def test_logprobs_are_asked_for_in_two_ways(body: CompletionBody | ChatBody, wanted: int | None) -> None:
    assert body.wanted_logprobs == wanted
    assert sampling_of(body) == Sampling(logprobs=wanted)


@pytest.mark.parametrize(
    ("make", "fields", "param"),
    [
        (completion, {"logprobs": 21}, "logprobs"),
        (completion, {"logprobs": True}, "logprobs"),
        (completion, {"min_p": 1.5}, "min_p"),
        (completion, {"presence_penalty": 2.5}, "presence_penalty"),
        (completion, {"frequency_penalty": -3}, "frequency_penalty"),
        (completion, {"repetition_penalty": 0}, "repetition_penalty"),
        (completion, {"logit_bias": {"AI": -100}}, "logit_bias"),
        (completion, {"logit_bias": {"-1": 0}}, "logit_bias"),
        (completion, {"logit_bias": {"1": 101}}, "logit_bias"),
        (completion, {"logit_bias": {str(number): 1 for number in range(2000)}}, "logit_bias"),
        (chat, {"top_logprobs": 2}, "top_logprobs"),
        (chat, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_values_out_of_range_are_refused_by_name(make: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ValidationError) as refused:
        make(**fields)
    assert refused.value.errors()[0]["loc"][0] == param


def test_biases_and_logprobs_cross_between_the_processes() -> None:
    sampling = Sampling(logit_bias={50_000: -1.5}, logprobs=1)
    event = TokenEvent("r", (3,), None, 1, 1, (TokenLogprobs(3, -0.25, (4,), (-float("inf"),)),))

    async def sent(message: Any) -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(frame(message))
        return await read_from_loop(reader)

    from leeway_engine.messages import EngineStats
    from leeway_engine.server import channel

    stepped = Stepped([event], EngineStats(0, 0, 0, 0, 0, 0, 0, 0, 0))
    assert asyncio.run(sent(stepped)) == stepped
    added = Add(GenerationRequest("r", (1,), 2, sampling))
    assert channel._decode_to_loop(channel._encode(added)).request.sampling == sampling


def collected(events: list[TokenEvent], stops: tuple[str, ...] = ()) -> list[Piece]:
    async def collect() -> list[Piece]:
        stream = TokenStream()
        for event in events:
            stream.put(event)
        return [piece async for piece in pieces(stream, Detokenizer(TOKENIZER), StopStrings(stops))]

    return asyncio.run(collect())


def test_every_token_with_text_has_its_logprobs_and_a_stop_token_has_none() -> None:
    a, b = logprobs_of("a"), logprobs_of("b")
    end = TokenLogprobs(END, -0.1, (), ())
    events = [
        TokenEvent("r", (a.token_id,), None, 1, 1, (a,)),
        TokenEvent("r", (b.token_id,), None, 1, 2, (b,)),
        TokenEvent("r", (END,), FinishReason.STOP, 1, 3, (end,)),
    ]
    assert [token for piece in collected(events) for token in piece.logprobs] == [a, b]
    length = [*events[:1], TokenEvent("r", (b.token_id,), FinishReason.LENGTH, 1, 2, (b,))]
    assert [token for piece in collected(length) for token in piece.logprobs] == [a, b]


def test_completions_list_tokens_and_where_they_begin_across_chunks() -> None:
    answer = CompletionAnswer("m", CompletionLogprobs(TOKENIZER))
    first = answer.chunk(Piece("ab", None, 1, 2, (logprobs_of("a"), logprobs_of("b", -float("inf")))))
    assert first["choices"][0]["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [-0.5, -9999.0],
        "top_logprobs": [{"a": -0.5, "z": -2.0}, {"b": -9999.0, "z": -2.0}],
        "text_offset": [0, 1],
    }
    second = answer.chunk(Piece("c", "length", 1, 3, (logprobs_of("c"),)))
    assert second["choices"][0]["logprobs"]["text_offset"] == [2]


def test_chats_give_an_object_for_each_token() -> None:
    answer = ChatAnswer("m", ChatLogprobs(TOKENIZER))
    half = TokenLogprobs(TOKENIZER.encode("é").ids[0], -1.0, (), ())
    whole = answer.whole("a", Piece("a", "length", 1, 2, (logprobs_of("a"), half)))
    assert whole["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "a",
                "logprob": -0.5,
                "bytes": [97],
                "top_logprobs": [
                    {"token": "a", "logprob": -0.5, "bytes": [97]},
                    {"token": "z", "logprob": -2.0, "bytes": [122]},
                ],
            },
            {"token": "\ufffd", "logprob": -1.0, "bytes": None, "top_logprobs": []},
        ],
        "refusal": None,
    }


@pytest.mark.parametrize("answer", [CompletionAnswer("m"), ChatAnswer("m")])
def test_without_being_asked_for_logprobs_are_null(answer: CompletionAnswer | ChatAnswer) -> None:
    assert answer.whole("a", Piece("a", "length", 1, 1))["choices"][0]["logprobs"] is None
