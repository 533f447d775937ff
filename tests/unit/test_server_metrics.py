"""What a pod's metrics say of its requests, its iterations and its engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from leeway_core.terms import HeaderError
from leeway_engine.decode_buckets import bucket_sizes
from leeway_engine.messages import EngineStats, Iteration, TokenEvent
from leeway_engine.server.channel import Stepped
from leeway_engine.server.errors import ApiError, rejection_code
from leeway_engine.server.generation import Piece
from leeway_engine.server.metrics.request_metrics import FINISH_REASONS, REJECTIONS
from leeway_engine.server.metrics.request_record import RequestRecord
from leeway_engine.server.metrics.server_metrics import ServerMetrics
from leeway_engine.server.token_stream import BREAKS, GenerationError
from prometheus_client import generate_latest


def stepped(iterations: int, last: Iteration, **more: Any) -> Stepped:
    return Stepped([], EngineStats(1, 0, 0, 0, 0, iterations, 0, 0, 0, last, **more))


def value(metrics: ServerMetrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(f"leeway_engine_{name}", labels)
    assert found is not None, f"no series {name} with {labels}"
    return found


def ended(metrics: ServerMetrics) -> dict[str, float]:
    """Requests that ended, by the reasons that there were any of."""
    counted = {reason: value(metrics, "requests_total", finish_reason=reason) for reason in FINISH_REASONS}
    return {reason: number for reason, number in counted.items() if number}


async def pieces_of(*pieces: Piece | Exception) -> AsyncIterator[Piece]:
    for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        yield piece


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_every_series_with_known_labels_is_there_from_the_start_at_0_and_says_what_it_is() -> None:
    metrics = ServerMetrics(graphs=bucket_sizes(16))
    for name, labels in (
        ("arrivals_total", {}),
        ("admitted_requests_total", {}),
        *(("rejections_total", {"reason": reason}) for reason in REJECTIONS),
        *(("cancels_total", {"phase": phase}) for phase in ("waiting", "prefilling", "decoding", "swapped")),
        *(("preemptions_total", {"way": way}) for way in ("recompute", "swap")),
        *(("iterations_total", {"path": path}) for path in ("native", "triton", "eager", "graph-1", "graph-16")),
        *(("requests_total", {"finish_reason": reason}) for reason in FINISH_REASONS),
        ("failed_iterations_total", {}),
        ("cancelled_tokens_total", {}),
        ("partial_prefills_total", {}),
        *((f"{name}_count", {}) for name in ("ttft_seconds", "itl_seconds", "tpot_seconds", "request_seconds")),
        *((f"{name}_count", {}) for name in ("queue_delay_seconds", "chunk_tokens", "cancel_delay_seconds")),
    ):
        assert value(metrics, name, **labels) == 0, name
    lines = generate_latest(metrics.registry).decode().splitlines()
    described = {line.split()[2] for line in lines if line.startswith("# HELP") and len(line.split()) > 3}
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == described


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_request_is_counted_before_the_end_of_its_answer_leaves(reason: str) -> None:
    metrics = ServerMetrics()

    async def run() -> None:
        pieces = pieces_of(Piece("a", None, 7, 1), Piece("b", reason, 7, 2))
        async with aclosing(RequestRecord(metrics.requests, 0.0).observed(pieces)) as source:
            assert (await anext(source)).text == "a"
            assert ended(metrics) == {}
            assert (await anext(source)).text == "b"
            assert ended(metrics) == {reason: 1}
            assert (value(metrics, "prompt_tokens_sum"), value(metrics, "output_tokens_sum")) == (7, 2)

    asyncio.run(run())
    assert ended(metrics) == {reason: 1}
    assert value(metrics, "output_tokens_count") == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GenerationError("queue_full", "full", 1.0), "rejected"),
        (GenerationError("engine_died", "dead"), "error"),
        (GenerationError("engine_failed", "failed"), "error"),
        (GenerationError("timed_out", "late"), "timeout"),
        (GenerationError("aborted", "told to"), "abort"),
        (RuntimeError("a bug"), "error"),
    ],
)
@pytest.mark.parametrize("texts", [0, 1])
def test_a_request_that_breaks_off_is_counted_once_by_its_cause(error: Exception, reason: str, texts: int) -> None:
    metrics = ServerMetrics()

    async def run() -> None:
        pieces = pieces_of(*[Piece("a", None, 7, 1)] * texts, error)
        async for _ in RequestRecord(metrics.requests, 0.0).observed(pieces):
            pass

    with pytest.raises(type(error)):
        asyncio.run(run())
    assert ended(metrics) == {reason: 1}
    billed = 0 if reason in ("timeout", "abort") else texts
    assert value(metrics, "prompt_tokens_count") == value(metrics, "output_tokens_count") == billed


def test_a_client_that_leaves_early_is_a_cancel_and_no_latency_of_a_completed_request() -> None:
    metrics = ServerMetrics()

    async def run() -> None:
        pieces = pieces_of(Piece("a", None, 7, 1), Piece("b", "stop", 7, 2))
        async with aclosing(RequestRecord(metrics.requests, 0.0).observed(pieces)) as source:
            await anext(source)

    asyncio.run(run())
    assert ended(metrics) == {"cancel": 1}
    assert value(metrics, "request_seconds_count") == value(metrics, "tpot_seconds_count") == 0
    assert value(metrics, "prompt_tokens_count") == value(metrics, "output_tokens_count") == 0, "it is in no bill"


def test_gaps_between_tokens_are_those_of_their_coming_however_slowly_the_client_reads() -> None:
    metrics, clock = ServerMetrics(), Clock()
    record = RequestRecord(metrics.requests, 99.0, clock)
    for second, tokens in ((100.0, (1,)), (100.5, (2,)), (101.5, (3, 4))):
        clock.now_s = second
        record.tokens(TokenEvent("r", tokens, None, 7, 0))

    async def run() -> None:
        clock.now_s = 109.0
        async for _ in record.observed(pieces_of(Piece("abcd", "length", 7, 4))):
            pass

    asyncio.run(run())
    assert value(metrics, "itl_seconds_count") == 3
    assert value(metrics, "itl_seconds_sum") == pytest.approx(1.5)
    assert value(metrics, "tpot_seconds_sum") == pytest.approx(0.5)
    assert value(metrics, "request_seconds_sum") == pytest.approx(10.0)


def test_a_single_token_has_no_time_per_token() -> None:
    metrics = ServerMetrics()

    async def run() -> None:
        record = RequestRecord(metrics.requests, 0.0)
        record.tokens(TokenEvent("r", (1,), None, 7, 1))
        async for _ in record.observed(pieces_of(Piece("a", "stop", 7, 1))):
            pass

    asyncio.run(run())
    assert (value(metrics, "tpot_seconds_count"), value(metrics, "request_seconds_count")) == (0, 1)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GenerationError("kv_headroom", "full", 1.0), "kv_headroom"),
        (ApiError(503, "not yet", code="not_ready"), "not_ready"),
        (ApiError(400, "no code"), "invalid"),
        (HeaderError("x-leeway-priority", "a number", "high"), "invalid"),
        (GenerationError("a code that nobody knows", "?"), "invalid"),
    ],
)
def test_what_is_not_served_is_counted_by_why(error: Exception, reason: str) -> None:
    metrics = ServerMetrics()
    code = rejection_code(error)
    assert code is not None
    metrics.requests.rejected(code)
    assert value(metrics, "rejections_total", reason=reason) == 1


@pytest.mark.parametrize("error", [*(GenerationError(code, "?") for code in BREAKS), RuntimeError("a bug")])
def test_a_request_that_was_taken_and_breaks_off_is_no_refusal(error: Exception) -> None:
    assert rejection_code(error) is None


def test_the_error_of_a_prediction_counts_once_there_is_a_prediction() -> None:
    metrics = ServerMetrics()
    metrics.stepped(stepped(1, Iteration(seconds=0.1)))
    metrics.stepped(stepped(2, Iteration(seconds=0.1, predicted_s=0.08)))
    metrics.stepped(stepped(2, Iteration(seconds=0.1, predicted_s=0.08)))
    metrics.stepped(stepped(3, Iteration(seconds=0.1, predicted_s=0.15)))
    name = "prediction_error_ratio"
    assert value(metrics, f"{name}_count") == 2
    assert value(metrics, f"{name}_bucket", le="0.3") == 1
    assert value(metrics, f"{name}_sum") == pytest.approx(0.7)


def test_an_iteration_is_counted_once_with_its_chunks_delays_and_what_ran_it() -> None:
    metrics = ServerMetrics()
    last = Iteration(0.1, path="graph-16", chunks=(512, 100), partial_prefills=1, queue_delays_s=(0.25,))
    metrics.stepped(stepped(1, last))
    metrics.stepped(Stepped([], stepped(1, last).stats, [0.002]))
    assert value(metrics, "iterations_total", path="graph-16") == 1
    assert (value(metrics, "chunk_tokens_count"), value(metrics, "chunk_tokens_sum")) == (2, 612)
    assert value(metrics, "partial_prefills_total") == 1
    assert (value(metrics, "queue_delay_seconds_count"), value(metrics, "queue_delay_seconds_sum")) == (1, 0.25)
    assert value(metrics, "admitted_requests_total") == 1
    assert value(metrics, "cancel_delay_seconds_count") == 1


def test_the_series_of_tenants_that_wait_no_more_end() -> None:
    metrics = ServerMetrics()
    metrics.stepped(stepped(1, Iteration(), tenant_debts={"a": 0.0, 'odd "name"\n': 30.0}))
    assert value(metrics, "tenant_debt_tokens", tenant='odd "name"\n') == 30.0
    metrics.stepped(stepped(2, Iteration(), tenant_debts={"a": 5.0}))
    text = generate_latest(metrics.registry).decode()
    assert 'leeway_engine_tenant_debt_tokens{tenant="a"} 5.0' in text
    assert "odd" not in text


def test_preemptions_and_cancels_are_told_apart() -> None:
    metrics = ServerMetrics()
    stats = EngineStats(0, 0, 0, 0, 0, 0, 0, 0, 5, preemptions_by_swap=2, cancels={"decoding": 3}, cancelled_tokens=70)
    metrics.stepped(Stepped([], stats))
    assert value(metrics, "preemptions_total", way="recompute") == 3
    assert value(metrics, "preemptions_total", way="swap") == 2
    assert value(metrics, "cancels_total", phase="decoding") == 3
    assert value(metrics, "cancelled_tokens_total") == 70
