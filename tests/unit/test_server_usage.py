"""What clients and Prometheus are told of prefixes that were found, and how tenants keep apart."""

import asyncio

import pytest
from leeway_engine.messages import EngineStats, TokenEvent
from leeway_engine.scheduling.request import FinishReason
from leeway_engine.server.answers import ChatAnswer, CompletionAnswer
from leeway_engine.server.channel import Stepped
from leeway_engine.server.detokenizer import Detokenizer
from leeway_engine.server.generation import Piece, pieces
from leeway_engine.server.metrics.server_metrics import ServerMetrics
from leeway_engine.server.requests import CompletionBody
from leeway_engine.server.stop_strings import StopStrings
from leeway_engine.server.token_stream import TokenStream
from prometheus_client import generate_latest
from pydantic import ValidationError
from tokenizers import Tokenizer, models

USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 2,
    "total_tokens": 42,
    "prompt_tokens_details": {"cached_tokens": 32},
}


def last_piece() -> Piece:
    async def run() -> Piece:
        stream = TokenStream()
        stream.put(TokenEvent("r", (0, 1), FinishReason.LENGTH, 40, 2, cached_tokens=32))
        detokenizer = Detokenizer(Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
        return [piece async for piece in pieces(stream, detokenizer, StopStrings(()))][-1]

    return asyncio.run(run())


def test_usage_tells_the_cached_tokens_of_the_prompt() -> None:
    last = last_piece()
    for answer in (CompletionAnswer("m"), ChatAnswer("m")):
        assert answer.whole("ab", last)["usage"] == USAGE
        assert answer.usage_chunk(last)["usage"] == USAGE


def test_a_salt_may_be_any_short_text() -> None:
    assert CompletionBody(model="m", prompt="p", cache_salt="tenant é").cache_salt == "tenant é"
    with pytest.raises(ValidationError):
        CompletionBody(model="m", prompt="p", cache_salt="x" * 1025)
    assert CompletionBody(model="m", prompt="p", tool_schema="v2").tool_schema == "v2"


def test_the_metrics_tell_hits_cached_blocks_and_swaps() -> None:
    metrics = ServerMetrics()
    reading = EngineStats(
        running=1,
        waiting=0,
        waiting_tokens=0,
        kv_blocks_free=70,
        kv_blocks_total=100,
        iterations=5,
        prefill_tokens=0,
        decode_tokens=0,
        preemptions=2,
        kv_blocks_cached=50,
        prefix_queried_tokens=900,
        prefix_hit_tokens=600,
        swapped_out_blocks=9,
        swapped_in_blocks=8,
        swap_blocks_used=1,
        tool_waits=3,
    )
    metrics.stepped(Stepped([], reading))
    text = generate_latest(metrics.registry).decode()
    for line in (
        'leeway_engine_kv_blocks{state="free"} 20.0',
        'leeway_engine_kv_blocks{state="cached"} 50.0',
        'leeway_engine_kv_blocks{state="used"} 30.0',
        "leeway_engine_prefix_queried_tokens_total 900.0",
        "leeway_engine_prefix_hit_tokens_total 600.0",
        'leeway_engine_swapped_blocks_total{way="out"} 9.0',
        'leeway_engine_swapped_blocks_total{way="in"} 8.0',
        "leeway_engine_swap_blocks 1.0",
        "leeway_engine_tool_waits 3.0",
    ):
        assert f"\n{line}\n" in text
