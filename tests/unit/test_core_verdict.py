"""When a request met its objective."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_core.objective import Objective
from leeway_core.verdict import REASONS, Outcome, Timeline, Verdict, judge, quantile

INTERACTIVE = Objective(name="interactive", ttft_ms=1000, itl_ms=100, quantile_percent=95)
READING = Objective(name="reading", tpot_ms=100)
BATCH = Objective(name="batch", deadline_seconds=60)


def timeline(
    ttft_s: float = 0.5, gaps_s: tuple[float, ...] = (), outcome: Outcome = "finished", rest_s: float = 0.0
) -> Timeline:
    output_s = list(accumulate(gaps_s, initial=10 + ttft_s))
    return Timeline(arrival_s=10, output_s=output_s, end_s=output_s[-1] + rest_s, outcome=outcome)


def test_all_bounds_held_is_met() -> None:
    assert judge(INTERACTIVE, timeline(gaps_s=(0.05,) * 9)) == Verdict("met", "", {"ttft": True, "itl": True})


def test_a_bound_is_held_up_to_and_including_itself() -> None:
    assert judge(INTERACTIVE, timeline(ttft_s=1.0)).result == "met"


@pytest.mark.parametrize(("slow", "result"), [(1, "met"), (2, "missed")])
def test_a_quantile_of_95_leaves_one_gap_in_twenty_free(slow: int, result: str) -> None:
    verdict = judge(INTERACTIVE, timeline(gaps_s=(0.05,) * (20 - slow) + (5.0,) * slow))
    assert (verdict.result, verdict.reason) == (result, "itl" if result == "missed" else "")


def test_several_bounds_broken_name_the_first_and_tell_each() -> None:
    verdict = judge(INTERACTIVE, timeline(ttft_s=2, gaps_s=(1.0,)))
    assert verdict == Verdict("missed", "ttft", {"ttft": False, "itl": False})


def test_tokens_that_come_in_one_chunk_do_not_hide_the_wait_for_it() -> None:
    bursts = Timeline(arrival_s=0, output_s=[0.1, 1.1, 2.1], end_s=2.1, outcome="finished", tokens=60)
    assert judge(INTERACTIVE, bursts).reason == "itl"
    assert bursts.tpot_s == pytest.approx(2 / 59)


def test_tpot_is_the_mean_wait_after_the_first_token() -> None:
    assert judge(READING, timeline(gaps_s=(0.01, 0.19))).result == "met"
    assert judge(READING, timeline(gaps_s=(0.01, 0.21))).reason == "tpot"


def test_a_response_that_is_not_streamed_is_one_piece_of_output_without_gaps() -> None:
    assert judge(INTERACTIVE, Timeline(0, [0.9], 0.9, "finished", tokens=100)).result == "met"
    assert judge(INTERACTIVE, Timeline(0, [9.0], 9.0, "finished", tokens=100)).reason == "ttft"


def test_a_response_without_output_has_its_end_for_ttft() -> None:
    assert judge(INTERACTIVE, Timeline(0, [], 0.5, "finished")).result == "met"
    assert judge(INTERACTIVE, Timeline(0, [], 1.5, "finished")).reason == "ttft"


def test_a_deadline_holds_for_the_whole_request() -> None:
    assert judge(BATCH, timeline(gaps_s=(50,))).result == "met"
    assert judge(BATCH, timeline(gaps_s=(60,))).reason == "deadline"


@pytest.mark.parametrize("outcome", ["rejected", "failed", "timed_out"])
def test_what_does_not_finish_misses_all_bounds(outcome: Outcome) -> None:
    assert judge(INTERACTIVE, timeline(outcome=outcome)) == Verdict("missed", outcome, {"ttft": False, "itl": False})


def test_a_cancel_before_any_bound_was_broken_is_left_out() -> None:
    assert judge(INTERACTIVE, timeline(outcome="cancelled")) == Verdict("cancelled", "", {})
    assert judge(INTERACTIVE, Timeline(0, [], 0.9, "cancelled")).result == "cancelled"


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (Timeline(0, [], 1.1, "cancelled"), "ttft"),
        (timeline(gaps_s=(0.5,) * 9, outcome="cancelled"), "itl"),
        (timeline(outcome="cancelled", rest_s=0.5), "itl"),
    ],
)
def test_a_cancel_after_a_bound_was_broken_is_a_miss(seen: Timeline, reason: str) -> None:
    assert judge(INTERACTIVE, seen) == Verdict("missed", reason, {reason: False})


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 100))
def test_at_least_the_share_of_values_is_within_the_quantile(values: list[float], percent: int) -> None:
    bound = quantile(values, percent)
    assert bound in values
    assert sum(value <= bound for value in values) * 100 >= percent * len(values)
    assert sum(value < bound for value in values) * 100 < percent * len(values)


@given(
    st.sampled_from([INTERACTIVE, READING, BATCH]),
    st.lists(st.floats(0, 100), max_size=20),
    st.sampled_from(["finished", "rejected", "failed", "timed_out", "cancelled"]),
)
def test_every_verdict_is_one_of_those_that_are_counted(
    objective: Objective, gaps_s: list[float], outcome: Outcome
) -> None:
    output_s = list(accumulate(gaps_s))
    verdict = judge(objective, Timeline(0, output_s, output_s[-1] if output_s else 1.0, outcome))
    assert verdict.reason in REASONS[verdict.result]
