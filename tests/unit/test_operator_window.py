"""What a window's readings rest on: scrapes since the knobs settled, and, for breaches, all since the push."""

from collections.abc import Sequence

from leeway_core.reading import TooFewSamples, Value
from leeway_operator.telemetry.series import Series
from leeway_operator.telemetry.window import Scope, judge_window

SCRAPES_S = tuple(range(0, 40, 5))
POD = "gateway"


def verdicts(until_s: float, met: Sequence[float], missed: Sequence[float], **labels: str) -> list[Series]:
    return [
        Series(
            {"pod": POD, "objective": "chat", "result": result, "reason": "", **labels},
            [(at_s, value) for at_s, value in zip(SCRAPES_S, values, strict=True) if at_s <= until_s],
        )
        for result, values in (("met", met), ("missed", missed))
    ]


def test_before_knobs_have_settled_readings_since_the_push_tell_of_a_breach() -> None:
    scope = Scope("shop", frozenset({POD}), ("chat",), pushed_s=11.0)
    met, missed = (0, 20, 40, 42, 42, 42, 42, 42), (0, 0, 0, 18, 38, 58, 78, 98)
    telemetry = judge_window(verdicts(20, met, missed), [], scope, from_s=16.0, now_s=21.0)
    assert isinstance(telemetry.attainment, TooFewSamples)
    assert telemetry.unsettled is not None
    assert (telemetry.unsettled.from_s, telemetry.unsettled.to_s) == (15, 20)
    assert telemetry.unsettled.attainment == Value(value=0.0, samples=20, age_s=1.0)
    assert telemetry.unsettled.objectives == {"chat": telemetry.unsettled.attainment}


def test_without_a_push_there_are_settled_readings_alone() -> None:
    scope = Scope("shop", frozenset({POD}), ("chat",))
    telemetry = judge_window(verdicts(35, SCRAPES_S, SCRAPES_S), [], scope, from_s=16.0, now_s=36.0)
    assert telemetry.unsettled is None
    assert (telemetry.from_s, telemetry.to_s) == (20, 35)
    assert telemetry.attainment == Value(value=0.5, samples=30, age_s=1.0)


def test_a_pod_that_is_scraped_twice_counts_once() -> None:
    scope = Scope("shop", frozenset({POD}), ("chat",))
    once = verdicts(35, SCRAPES_S, SCRAPES_S, job="kubernetes-pods")
    twice = once + verdicts(35, SCRAPES_S, SCRAPES_S, job="shop/chat", container="gateway")
    assert judge_window(twice, [], scope, from_s=16.0, now_s=36.0) == judge_window(
        once, [], scope, from_s=16.0, now_s=36.0
    )


def test_of_two_scrapers_the_one_that_has_stopped_does_not_count() -> None:
    scope = Scope("shop", frozenset({POD}), ("chat",))
    stopped = verdicts(15, SCRAPES_S, SCRAPES_S, job="former")
    going_on = [
        Series(series.labels, series.samples[-3:]) for series in verdicts(35, SCRAPES_S, SCRAPES_S, job="present")
    ]
    telemetry = judge_window(stopped + going_on, [], scope, from_s=0.0, now_s=36.0)
    assert (telemetry.from_s, telemetry.to_s) == (25, 35)
    assert telemetry.attainment == Value(value=0.5, samples=20, age_s=1.0)
