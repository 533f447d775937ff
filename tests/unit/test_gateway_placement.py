"""Where a request goes that pods refused, and how long it is held."""

import pytest
from leeway_gateway.placement.refusal import DEADLINE_UNREACHABLE, PAUSE_S, hold_s, passed_over, refusal


def test_a_pod_is_asked_again_when_it_said_and_not_before() -> None:
    refusals = {"a": refusal(10.0, "queue_upstream", 3.0), "b": refusal(10.0, "queue_full", 1.0)}
    assert passed_over(refusals, 10.9, 9.0) == {"a", "b"}
    assert hold_s(refusals, 10.5, 9.0) == 0.5
    assert passed_over(refusals, 11.0, 9.0) == {"a"}
    assert passed_over(refusals, 13.0, 9.0) == set()


@pytest.mark.parametrize("retry_after_s", [None, 0.0])
def test_a_pod_that_names_no_time_is_asked_again_after_a_pause(retry_after_s: float | None) -> None:
    refusals = {"a": refusal(10.0, retry_after_s=retry_after_s)}
    assert passed_over(refusals, 10.0 + PAUSE_S / 2, 9.0) == {"a"}
    assert passed_over(refusals, 10.0 + PAUSE_S, 9.0) == set()


def test_nothing_is_held_longer_than_the_wait_and_nothing_asked_twice_after_it() -> None:
    refusals = {"a": refusal(10.0, "queue_upstream", 60.0)}
    assert hold_s(refusals, 12.0, 8.0) == 8.0
    assert hold_s(refusals, 20.0, 0.0) is None
    assert passed_over(refusals, 80.0, 0.0) == {"a"}


def test_a_final_refusal_ends_the_wait_and_leaves_only_pods_that_were_not_asked() -> None:
    refusals = {"a": refusal(10.0, DEADLINE_UNREACHABLE, 1.0), "b": refusal(10.0, "queue_full", 1.0)}
    assert passed_over(refusals, 99.0, 9.0) == {"a", "b"}
    assert hold_s(refusals, 10.0, 9.0) is None


def test_a_request_without_a_pod_is_held_until_one_comes_and_a_pod_that_left_wakes_nobody() -> None:
    assert hold_s({}, 10.0, 9.0) == 9.0
    assert hold_s({"gone": refusal(10.0)}, 15.0, 4.0) == 4.0
