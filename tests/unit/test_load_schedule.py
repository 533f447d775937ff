import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_core.errors import UserError
from leeway_load.prompt import PromptWriter, Segment
from leeway_load.schedule import Departure, PlannedRequest, plan
from leeway_load.trace import Trace, TraceRecord
from leeway_load.workload import Lengths, TrafficClass, Workload

TOKEN_IDS = range(80, 1200)
WRITER = PromptWriter("salt", TOKEN_IDS)

records = st.builds(
    TraceRecord,
    arrival_s=st.floats(0, 1000),
    prompt_tokens=st.integers(0, 3000),
    output_tokens=st.integers(0, 500),
)
traces = st.lists(records, min_size=1, max_size=40).map(
    lambda rows: Trace(tuple(sorted(rows, key=lambda row: row.arrival_s)))
)
workloads = st.builds(
    Workload,
    classes=st.sampled_from([(), (TrafficClass.parse("chat:ttftMs=1,weight=3"), TrafficClass.parse("batch:itlMs=9"))]),
    seed=st.integers(0, 5),
    time_scale=st.floats(0.01, 100),
    prompt_scale=st.floats(0.01, 3),
    output_scale=st.floats(0.01, 3),
    max_prompt_tokens=st.none() | st.integers(1, 1000),
    max_output_tokens=st.none() | st.integers(1, 100),
    prefix_hit_share=st.none() | st.floats(0, 1),
    tenants=st.integers(1, 5),
    tenant_skew=st.floats(0, 3),
    burst_period_s=st.none() | st.floats(0.1, 100),
    cancel_share=st.floats(0, 0.5),
    hasty_share=st.floats(0, 0.5),
)


def even_trace(count: int, gap_s: float = 1.0) -> Trace:
    return Trace(tuple(TraceRecord(index * gap_s, 1000, 100) for index in range(count)))


def times(requests: list[PlannedRequest]) -> list[float]:
    return [one.send_s for one in requests]


@given(traces, workloads)
def test_every_request_is_planned_once_in_order_of_time_and_the_same_again(trace: Trace, workload: Workload) -> None:
    requests = plan(trace, workload)
    assert sorted(one.index for one in requests) == list(range(len(trace.records)))
    assert times(requests) == sorted(times(requests))
    assert min(times(requests)) >= 0
    assert plan(trace, workload) == requests


@given(traces, workloads)
def test_prompts_have_exactly_the_planned_length(trace: Trace, workload: Workload) -> None:
    for one in plan(trace, workload):
        traced = max(1, round(trace.records[one.index].prompt_tokens * workload.prompt_scale))
        assert one.prompt_tokens == min(traced, workload.max_prompt_tokens or traced)
        token_ids = json.loads(WRITER.write(one.prompt))
        assert len(token_ids) == one.prompt_tokens
        assert set(token_ids) <= set(TOKEN_IDS)


@given(traces, workloads)
def test_the_short_cohort_is_the_same_alone_as_among_long_ones(trace: Trace, workload: Workload) -> None:
    def bare(requests: list[PlannedRequest]) -> list[PlannedRequest]:
        return [replace(one, prefix_hit=False) for one in requests]

    everyone = bare(plan(trace, workload))
    for lengths in (Lengths.SHORT, Lengths.LONG):
        expected = [one for one in everyone if one.short == (lengths is Lengths.SHORT)]
        if expected:
            assert bare(plan(trace, replace(workload, lengths=lengths))) == expected


@given(traces, workloads)
def test_cancels_and_time_outs_leave_the_rest_of_the_plan_alone(trace: Trace, workload: Workload) -> None:
    calm = plan(trace, replace(workload, cancel_share=0, hasty_share=0))
    for one, other in zip(plan(trace, workload), calm, strict=True):
        assert replace(one, patience_s=other.patience_s, departure=other.departure) == other


@given(st.floats(0.1, 100), st.integers(2, 100))
def test_the_rate_is_exact(rate: float, count: int) -> None:
    sent = times(plan(even_trace(count), Workload(rate=rate)))
    assert (count - 1) / (sent[-1] - sent[0]) == pytest.approx(rate)


def test_rate_and_duration_choose_how_much_of_the_trace_is_used() -> None:
    requests = plan(even_trace(1000), Workload(rate=5, duration_s=20))
    assert len(requests) == 100
    assert requests[-1].send_s == pytest.approx(99 / 5)


def test_duration_alone_cuts_the_scaled_time() -> None:
    assert len(plan(even_trace(100), Workload(time_scale=0.5, duration_s=10))) == 20


@given(st.floats(0.5, 50), st.floats(0.05, 1))
def test_bursts_keep_each_request_in_its_period(period_s: float, share: float) -> None:
    steady = plan(even_trace(100), Workload())
    burst = plan(even_trace(100), Workload(burst_period_s=period_s, burst_share=share))
    for one, other in zip(steady, burst, strict=True):
        into_s = one.send_s % period_s
        assert one.send_s - into_s - 1e-9 <= other.send_s <= one.send_s - into_s + share * period_s + 1e-9


def test_coarse_times_are_spread_within_their_tick() -> None:
    trace = Trace(tuple(TraceRecord(second, 10, 10) for second in (0, 0, 0, 0, 3, 3, 3, 3)), tick_s=3)
    sent = times(plan(trace, Workload()))
    assert len(set(sent)) == 8
    assert sent[-1] <= 6


def test_shares_are_kept() -> None:
    workload = Workload(
        classes=(TrafficClass.parse("chat:ttftMs=1,weight=3"), TrafficClass.parse("batch:deadlineSeconds=60")),
        tenants=3,
        tenant_skew=1,
        cancel_share=0.2,
        cancel_within_s=4,
        hasty_share=0.1,
        hasty_timeout_s=0.5,
        timeout_s=60,
        prefix_hit_share=0.4,
    )
    requests = plan(even_trace(5000), workload)
    count = Counter[str]()
    for one in requests:
        count.update([one.class_name, one.tenant, one.departure, one.cohort])
    assert count["chat"] / 5000 == pytest.approx(0.75, abs=0.03)
    assert count["tenant-2"] / count["tenant-1"] == pytest.approx(0.5, abs=0.05)
    assert count["tenant-3"] / count["tenant-1"] == pytest.approx(0.33, abs=0.05)
    assert count["cancel"] / 5000 == pytest.approx(0.2, abs=0.03)
    assert count["long hit"] / 5000 == pytest.approx(0.4, abs=0.03)
    assert all(one.patience_s <= 4 for one in requests if one.departure is Departure.CANCEL)
    waits = Counter(one.patience_s for one in requests if one.departure is Departure.TIMEOUT)
    assert set(waits) == {0.5, 60}
    assert waits[0.5] / 5000 == pytest.approx(0.1, abs=0.02)


def test_a_trace_s_equal_blocks_become_equal_tokens_at_any_scale() -> None:
    rows = (TraceRecord(0, 1400, 1, (7, 8, 9)), TraceRecord(1, 1300, 1, (7, 8, 10)), TraceRecord(2, 1300, 1, (11, 12)))
    first, second, third = plan(Trace(rows), Workload(prompt_scale=0.1))
    ids = [json.loads(WRITER.write(one.prompt)) for one in (first, second, third)]
    assert [len(one) for one in ids] == [140, 130, 130]
    assert ids[0][:102] == ids[1][:102]
    assert ids[0][102:112] != ids[1][102:112]
    assert ids[0][:10] != ids[2][:10]
    assert [one.prefix_hit for one in (first, second, third)] == [False, True, False]


def test_misses_share_nothing_and_hits_share_most() -> None:
    for share, shared in ((0, 0), (1, 750)):
        one, other = plan(even_trace(2), Workload(prefix_hit_share=share))
        texts = [json.loads(WRITER.write(request.prompt)) for request in (one, other)]
        assert (texts[0][:750] == texts[1][:750]) == bool(shared)
        assert texts[0][750:] != texts[1][750:]
        assert other.prefix_hit == bool(shared)


@given(st.integers(1, 200_000), st.integers(1, 200_000))
def test_a_longer_segment_begins_with_the_shorter_of_its_key(one: int, other: int) -> None:
    first, second = (json.loads(WRITER.write([Segment("key", tokens)])) for tokens in (one, other))
    common = min(one, other)
    assert first[:common] == second[:common]


def test_another_salt_gives_other_prompts() -> None:
    prompt = [Segment("key", 50)]
    assert PromptWriter("a", TOKEN_IDS).write(prompt) != PromptWriter("b", TOKEN_IDS).write(prompt)


@pytest.mark.parametrize(
    ("workload", "complaint"),
    [
        (lambda: Workload(rate=0), "rate must be above 0"),
        (lambda: Workload(rate=float("nan")), "rate must be above 0"),
        (lambda: Workload(rate=1, time_scale=2), "not both"),
        (lambda: Workload(cancel_share=0.7, hasty_share=0.7), "together"),
        (lambda: Workload(prefix_hit_share=2), "between 0 and 1"),
        (lambda: Workload(classes=(TrafficClass.parse("a:ttftMs=1"),) * 2), "different names"),
        (lambda: TrafficClass.parse("chat"), "NAME:KEY=VALUE"),
        (lambda: TrafficClass.parse("chat:ttft=1"), "NAME:KEY=VALUE"),
        (lambda: TrafficClass.parse("chat:weight=1"), "needs a bound"),
        (lambda: TrafficClass.parse("chat:ttftMs=soon"), "ttftMs"),
        (lambda: TrafficClass.parse("chat:ttftMs=1,targetPercent=most"), "float"),
        (lambda: TrafficClass.parse("chat:ttftMs=1,targetPercent=101"), "targetPercent"),
        (lambda: TrafficClass.parse("chat:ttftMs=1,weight=much"), "chat"),
        (lambda: plan(even_trace(1), Workload(lengths=Lengths.SHORT)), "left to send"),
        (lambda: plan(even_trace(3, gap_s=0), Workload(rate=1)), "one moment"),
    ],
)
def test_what_makes_no_requests_is_refused(workload: Callable[[], object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        workload()
