"""Histograms of a pod hold what happened, in seconds."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from leeway_core.buckets import LATENCY_BUCKETS_S
from leeway_engine.messages import EngineStats, Iteration
from leeway_engine.server.channel import Stepped
from leeway_engine.server.generation import Piece
from leeway_engine.server.metrics.request_record import RequestRecord
from leeway_engine.server.metrics.server_metrics import ServerMetrics
from prometheus_client.utils import floatToGoString

IDLE = EngineStats(0, 0, 0, 0, 0, 0, 0, 0, 0)


def sample(metrics: ServerMetrics, name: str, **labels: str) -> float:
    value = metrics.registry.get_sample_value(f"leeway_engine_{name}", labels)
    assert value is not None
    return value


def test_iterations_and_gaps_add_up_and_lie_where_they_belong() -> None:
    metrics = ServerMetrics()
    durations_s = (0.004, 0.04, 0.4, 4.0)
    for number, seconds in enumerate(durations_s, start=1):
        metrics.stepped(Stepped([], replace(IDLE, iterations=number, last=Iteration(seconds, idle_gap_s=seconds / 10))))
    assert sample(metrics, "iteration_seconds_sum") == pytest.approx(4.444)
    assert sample(metrics, "idle_gap_seconds_sum") == pytest.approx(0.4444)
    bounds = [floatToGoString(min(bound for bound in LATENCY_BUCKETS_S if bound >= one)) for one in durations_s]
    assert [sample(metrics, "iteration_seconds_bucket", le=bound) for bound in bounds] == [1, 2, 3, 4]


def test_a_step_that_only_tells_of_cancels_is_no_iteration() -> None:
    metrics = ServerMetrics()
    stats = replace(IDLE, iterations=1, last=Iteration(0.1))
    metrics.stepped(Stepped([], stats))
    metrics.stepped(Stepped([], stats))
    assert sample(metrics, "iteration_seconds_count") == 1


def test_the_first_text_counts_from_the_arrival_and_lengths_from_the_end() -> None:
    metrics = ServerMetrics()

    async def run() -> None:
        async def pieces() -> AsyncIterator[Piece]:
            yield Piece("a", None, 40, 1)
            yield Piece("b", "length", 40, 2)

        record = RequestRecord(metrics.requests, time.monotonic() - 3.0)
        async for _ in record.observed(pieces()):
            pass

    asyncio.run(run())
    assert 3.0 <= sample(metrics, "ttft_seconds_sum") < 60.0
    assert (sample(metrics, "prompt_tokens_sum"), sample(metrics, "output_tokens_sum")) == (40, 2)
    assert sample(metrics, "requests_total", finish_reason="length") == 1
