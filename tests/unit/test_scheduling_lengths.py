"""What outputs are expected to be, by their class."""

import pytest
from leeway_engine.scheduling.lengths import OutputLengths


def lengths_of(outputs: dict[str, list[int]]) -> OutputLengths:
    lengths = OutputLengths()
    for slo_class, seen in outputs.items():
        for tokens in seen:
            lengths.observe(slo_class, tokens)
    return lengths


def test_each_class_has_lengths_of_its_own() -> None:
    lengths = lengths_of({"chat": [10] * 20, "batch": [300] * 20})
    assert lengths.expected("chat", 1000) == 10
    assert lengths.expected("batch", 1000) == 300


def test_a_class_with_few_outputs_is_taken_for_one_of_all() -> None:
    lengths = lengths_of({"chat": [10] * 20, "batch": [300] * 7})
    assert lengths.expected("batch", 1000) == lengths.expected("unheard of", 1000) == 10
    lengths.observe("batch", 300)
    assert lengths.expected("batch", 1000) == 300


def test_nothing_is_expected_to_be_shorter_than_it_may_be_before_a_few_have_ended() -> None:
    lengths = lengths_of({"chat": [10] * 7})
    assert lengths.expected("chat", 1000) == 1000
    lengths.observe("chat", 10)
    assert lengths.expected("chat", 1000) == 10
    assert lengths.expected("chat", 4) == 4


@pytest.mark.parametrize(("percent", "expected"), [(1, 1), (10, 10), (50, 50), (90, 90), (100, 100)])
def test_a_share_of_the_outputs_is_no_longer_than_expected(percent: int, expected: int) -> None:
    assert lengths_of({"chat": list(range(1, 101))}).expected("chat", 1000, percent) == expected


def test_what_is_expected_follows_the_newest_outputs() -> None:
    lengths = lengths_of({"chat": [10] * 300})
    assert lengths.expected("chat", 1000) == 10
    for _ in range(256):
        lengths.observe("chat", 70)
    assert lengths.expected("chat", 1000) == 70


def test_made_up_classes_take_no_room_without_end() -> None:
    lengths = lengths_of({f"class {number}": [number] * 8 for number in range(100)})
    assert lengths.expected("class 3", 1000) == 3
    assert lengths.expected("class 99", 1000) == lengths.expected("unheard of", 1000) > 3
