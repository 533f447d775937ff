import pytest
from leeway_core.verdict import Outcome, Timeline
from leeway_load.exchange import Exchange
from leeway_load.prompt import Segment
from leeway_load.ramp import RampStep, climb, settled
from leeway_load.report import Report, report
from leeway_load.schedule import Departure, PlannedRequest
from leeway_load.stream import error_message, read_event
from leeway_load.summary import summarize
from leeway_load.workload import TrafficClass

CHAT = TrafficClass.parse("chat:ttftMs=500,itlMs=100,quantilePercent=100,targetPercent=50").objective


def exchange(
    sent_s: float,
    output_s: list[float],
    end_s: float,
    outcome: Outcome = "finished",
    *,
    planned_s: float | None = None,
    lost: bool = False,
    tenant: str = "tenant-1",
    short: bool = True,
) -> Exchange:
    request = PlannedRequest(
        index=0,
        send_s=sent_s if planned_s is None else planned_s,
        prompt=(Segment("key", 10),),
        output_tokens=len(output_s),
        class_name="chat",
        tenant=tenant,
        patience_s=60,
        departure=Departure.TIMEOUT,
        short=short,
    )
    return Exchange(request, Timeline(sent_s, output_s, end_s, outcome), lost=lost)


GOOD = exchange(0, [0.2, 0.25, 0.3], 0.4)


def test_attainment_counts_failures_as_misses_and_leaves_cancels_out() -> None:
    exchanges = [
        GOOD,
        exchange(1, [1.6, 1.7], 1.7),
        exchange(2, [2.1, 2.4], 2.4),
        exchange(3, [3.1], 3.15, "cancelled"),
        exchange(4, [], 5, "cancelled"),
        exchange(6, [], 6.1, "rejected"),
        exchange(7, [7.1], 8, "timed_out"),
        exchange(9, [9.1], 9.2, "failed", lost=True),
    ]
    result = report(exchanges, [CHAT])
    (chat,) = result.attainment
    assert (chat.met, chat.cancelled) == (1, 1)
    assert chat.missed == {"ttft": 2, "itl": 1, "rejected": 1, "timed_out": 1, "failed": 1}
    assert chat.attained_percent == pytest.approx(100 / 7)
    assert not chat.reached
    assert result.endings == {"finished": 3, "cancelled": 2, "timed_out": 1, "rejected": 1, "failed": 0, "lost": 1}
    assert result.met_per_s == pytest.approx(1 / 9.2)


def test_latencies_are_told_by_cohort_and_tenant_only_where_there_are_several() -> None:
    result = report([GOOD, exchange(1, [1.9, 2.0], 2.0, short=False)], [CHAT])
    assert set(result.latencies) == {"all", "short miss", "long miss"}
    long = result.latencies["long miss"]
    assert long.ttft_s is not None
    assert long.ttft_s.p50 == pytest.approx(0.9)
    assert long.requests == 1
    assert "tenant-2" in report([GOOD, exchange(1, [2], 2, tenant="tenant-2")], []).latencies


def test_what_was_not_seen_is_none_and_not_zero() -> None:
    result = report([exchange(0, [], 1, "failed")], [])
    everyone = result.latencies["all"]
    assert (everyone.ttft_s, everyone.itl_s, everyone.tpot_s, everyone.e2e_s) == (None, None, None, None)
    assert (result.met_per_s, result.sent_per_s) == (None, None)
    assert summarize([]) is None
    (chat,) = report([exchange(0, [], 0.1, "cancelled")], [CHAT]).attainment
    assert chat.attained_percent is None
    assert not chat.reached


def test_tpot_spreads_time_over_the_tokens_that_the_server_counted() -> None:
    timeline = Timeline(0, [1, 2], 2, "finished", tokens=11)
    result = report([Exchange(GOOD.request, timeline)], [])
    everyone = result.latencies["all"]
    assert everyone.tpot_s is not None
    assert everyone.itl_s is not None
    assert everyone.tpot_s.p50 == pytest.approx(0.1)
    assert everyone.itl_s.p50 == pytest.approx(1)
    assert result.output_tokens == 11


def test_breaches_are_set_against_requests_in_flight() -> None:
    exchanges = [
        exchange(0, [0.1], 10),
        exchange(1, [1.9], 10),
        exchange(2, [2.9], 10),
        exchange(3, [3.1], 10),
        exchange(11, [11.1], 12),
    ]
    found = [
        (one.least_in_flight, one.most_in_flight, one.requests, one.missed)
        for one in report(exchanges, [CHAT]).breaches
    ]
    assert found == [(1, 1, 2, 0), (2, 3, 2, 2), (4, 7, 1, 0)]


@pytest.mark.parametrize(("lag_s", "void"), [(0.009, False), (0.011, True)])
def test_a_late_sender_voids_its_report(lag_s: float, void: bool) -> None:
    late = [exchange(second + lag_s, [second + 1], second + 1, planned_s=second) for second in range(2)]
    assert report([GOOD] * 98 + late, [CHAT]).void is void
    assert not report([GOOD] * 99 + late[:1], [CHAT]).void


def test_percentiles_are_nearest_ranks() -> None:
    summary = summarize(range(1, 201))
    assert summary is not None
    assert (summary.p50, summary.p90, summary.p95, summary.p99, summary.max) == (100, 180, 190, 198, 200)
    assert summary.mean == 100.5


def queue(rate: float, capacity: float, seconds: float = 60, service_s: float = 2) -> list[Exchange]:
    """Even arrivals at a server that starts `capacity` requests a second."""
    exchanges, free_s = [], 0.0
    for index in range(round(rate * seconds)):
        sent_s = index / rate
        free_s = max(free_s, sent_s) + 1 / capacity
        exchanges.append(exchange(sent_s, [free_s], free_s + service_s))
    return exchanges


@pytest.mark.parametrize(("rate", "is_settled"), [(1, True), (4, True), (4.9, True), (7, False), (20, False)])
def test_a_queue_settles_below_the_capacity_only(rate: float, is_settled: bool) -> None:
    assert settled(queue(rate, capacity=5)) is is_settled


def step(rate: float, *, is_settled: bool = True, met: bool = True, late: bool = False) -> RampStep:
    one = exchange(0.02 if late else 0, [0.1 if met else 5], 6, planned_s=0)
    return RampStep(rate, is_settled, report([one], [CHAT]))


def test_a_ramp_stops_at_an_unsettled_queue_and_names_the_highest_good_rate() -> None:
    ramp = climb(1, 2, lambda rate: step(rate, is_settled=rate < 8, met=rate < 4))
    assert [one.rate for one in ramp.steps] == [1, 2, 4, 8]
    assert ramp.highest_rate == 2
    assert ramp.goodput_per_s == ramp.steps[1].report.met_per_s
    assert not ramp.void
    assert "settled" in ramp.stopped


def test_a_ramp_stops_where_the_sender_is_late_or_the_trace_ends() -> None:
    late = climb(1, 2, lambda rate: step(rate, late=rate > 1))
    assert (late.highest_rate, late.void, len(late.steps)) == (1, False, 2)
    assert climb(1, 2, lambda rate: step(rate, late=True)).void
    short = climb(1, 2, lambda rate: step(rate) if rate < 5 else None)
    assert (short.highest_rate, "too few" in short.stopped) == (4, True)
    nothing: Report | None = None
    assert climb(1, 2, lambda rate: nothing).highest_rate is None


def test_stream_lines_are_read() -> None:
    text = read_event(b'data: {"choices": [{"text": "a", "finish_reason": null}]}\n')
    assert text is not None
    assert (text.has_text, text.finished) == (True, False)
    last = read_event(b'data:{"choices": [{"text": "", "finish_reason": "length"}], "usage": null}\r\n')
    assert last is not None
    assert (last.has_text, last.finished) == (False, True)
    usage = read_event(b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n')
    assert usage is not None
    assert usage.output_tokens == 7
    error = read_event(b'data: {"error": {"message": "pod gone"}}\n')
    assert error is not None
    assert error.error == "pod gone"
    assert [read_event(line) for line in (b"\n", b": ping\n", b"data: [DONE]\n", b"event: x\n")] == [None] * 4


@pytest.mark.parametrize(
    "line", [b"data: hello\n", b"data: 1\n", b"data: \xff\n", b'data: {"choices": [1]}\n', b'data: {"choices": 1}\n']
)
def test_what_is_no_openai_stream_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_event(line)


def test_error_bodies_give_their_message() -> None:
    assert error_message(b'{"error": {"message": "too long"}}') == "too long"
    assert error_message(b"<html>\xff") == "<html>\ufffd"
    assert error_message(b'{"error": 3}') == '{"error": 3}'
