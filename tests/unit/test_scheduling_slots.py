"""When a slot is free, by what those that run and wait are expected to generate."""

from heapq import heapify, heapreplace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_engine.scheduling.backlog import Backlog
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.request import Request
from leeway_engine.scheduling.slots import Slots


def read(left: list[int]) -> Slots:
    """Of requests that have so many tokens to generate still."""
    slots = Slots(OutputLengths())
    slots.read([Request(str(n), 1, tokens + 7, order=n, generated=7) for n, tokens in enumerate(left)], 1)
    return slots


def played(left: list[int], slots: int, waiting: int, output: int) -> int:
    """The same by playing it through."""
    ends = ([0] * slots + sorted(left))[-slots:]
    heapify(ends)
    for _ in range(waiting):
        heapreplace(ends, ends[0] + output)
    return ends[0]


@given(
    left=st.lists(st.integers(1, 300), max_size=40),
    slots=st.integers(1, 40),
    waiting=st.integers(0, 200),
    output=st.integers(1, 300),
)
def test_a_slot_is_free_when_it_is_played_through_or_half_an_output_from_then(
    left: list[int], slots: int, waiting: int, output: int
) -> None:
    expected = played(left, slots, waiting, output)
    assert abs(read(left).free_in(slots, waiting, output) - expected) <= output // 2 + 1


@given(left=st.lists(st.integers(1, 300), min_size=1, max_size=40))
def test_the_first_to_wait_gets_the_slot_that_is_free_first(left: list[int]) -> None:
    assert read(left).free_in(len(left), 0, 0) == read(left).first_end() == min(left)
    assert read(left).free_in(len(left) + 1, 0, 0) == 0


def test_of_many_requests_the_next_reading_waits_until_some_have_changed() -> None:
    slots = Slots(OutputLengths())
    requests = [Request(str(number), 1, 100, order=number) for number in range(64)]
    slots.read(requests, 10)
    requests[0].generated = 90
    slots.read(requests, 12)
    assert slots.first_end() == 100
    slots.read(requests, 13)
    assert slots.first_end() == 10
    slots.read([], 13)
    assert slots.first_end() == 0, "an idle pod is seen to be idle at once"


@given(
    waiting=st.lists(st.tuples(st.sampled_from(("", "chat", "batch")), st.integers(1, 60)), max_size=30),
    seen=st.lists(st.tuples(st.sampled_from(("", "chat", "batch")), st.integers(1, 60)), max_size=40),
    gone=st.integers(0, 30),
)
def test_the_backlog_is_the_sum_of_what_is_expected_of_each(
    waiting: list[tuple[str, int]], seen: list[tuple[str, int]], gone: int
) -> None:
    lengths, backlog = OutputLengths(), Backlog()
    for slo_class, tokens in seen:
        lengths.observe(slo_class, tokens)
    requests = [Request(str(n), 1, most, order=n, slo_class=name) for n, (name, most) in enumerate(waiting)]
    for request in requests:
        backlog.add(request)
    for request in requests[:gone]:
        backlog.remove(request)
    assert backlog.expected(lengths) == sum(lengths.expected(r.slo_class, r.max_tokens) for r in requests[gone:])


@pytest.mark.parametrize(("generated", "left"), [(0, 20), (15, 5), (40, 1)])
def test_what_is_left_is_the_usual_output_less_what_is_there(generated: int, left: int) -> None:
    lengths = OutputLengths()
    for _ in range(10):
        lengths.observe("chat", 20)
    slots = Slots(lengths)
    slots.read([Request("a", 1, 100, order=1, slo_class="chat", generated=generated)], 1)
    assert slots.first_end() == left
