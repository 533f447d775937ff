"""The knobs a profile starts with are those of common engines, inside what the user allows."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from leeway_operator.knobs import first_record, knob_ranges, obeying, starting_knobs
from leeway_operator.spec import Spec

OBJECTIVES = [{"name": "chat", "ttftMs": 500}]


def spec(knobs: dict[str, Any] | None = None, **ceilings: int) -> Spec:
    return Spec.model_validate(
        {
            "model": "m",
            "objectives": OBJECTIVES,
            "engine": {"ceilings": ceilings},
            "tuning": {"knobs": knobs or {}},
        }
    )


def test_without_bounds_they_are_what_the_ceilings_allow() -> None:
    knobs = starting_knobs(spec(tokenBudget=512, runningSequences=32))
    assert (knobs.token_budget, knobs.prefill_heavy_chunk, knobs.decode_heavy_chunk) == (512, 512, 512)
    assert (knobs.running_sequences, knobs.prefill_heavy_percent, knobs.generation) == (32, 50, 1)


def test_a_start_value_goes_before_all() -> None:
    assert starting_knobs(spec({"tokenBudget": {"start": 48, "max": 64}})).token_budget == 48


def test_a_start_value_of_zero_counts() -> None:
    bounds = {"decodeHeavyChunk": {"min": 0, "start": 0}, "prefillHeavyPercent": {"min": 25}}
    assert starting_knobs(spec(bounds)).decode_heavy_chunk == 0


def test_d_heavy_pods_start_with_no_larger_chunks_than_p_heavy_ones() -> None:
    knobs = starting_knobs(spec({"prefillHeavyChunk": {"max": 256}}))
    assert (knobs.prefill_heavy_chunk, knobs.decode_heavy_chunk) == (256, 256)


@given(low=st.integers(0, 100), width=st.integers(0, 100))
def test_the_share_stays_inside_its_bounds(low: int, width: int) -> None:
    high = min(100, low + width)
    share = starting_knobs(spec({"prefillHeavyPercent": {"min": low, "max": high}})).prefill_heavy_percent
    assert low <= share <= high


@given(low=st.integers(1, 2048), high=st.none() | st.integers(1, 2048))
def test_the_budget_stays_inside_bounds_and_ceiling(low: int, high: int | None) -> None:
    bounds = {"min": low} if high is None else {"min": min(low, high), "max": max(low, high)}
    budget = starting_knobs(spec({"tokenBudget": bounds})).token_budget
    assert bounds["min"] <= budget <= bounds.get("max", 2048)


BOUNDS = st.tuples(st.integers(16, 512), st.integers(16, 512), st.integers(16, 512)).map(sorted)


@given(first=BOUNDS, then=BOUNDS, named=st.booleans(), found=st.none() | st.integers(16, 512))
def test_new_bounds_are_obeyed_and_only_what_is_untuned_goes_to_a_new_start(
    first: list[int], then: list[int], named: bool, found: int | None
) -> None:
    def bounded(limits: list[int], named: bool = True) -> Spec:
        bounds = {"min": limits[0], "max": limits[2]} | ({"start": limits[1]} if named else {})
        return spec({"tokenBudget": bounds}, tokenBudget=512)

    record = first_record(bounded(first), 0.0)
    if found is not None:
        found = min(max(found, first[0]), first[2])
        record = record.only(record.incumbent.model_copy(update={"token_budget": found, "generation": 7}), 1.0)
    tuned = found not in (None, first[1])
    before = record.incumbent
    after = obeying(record, bounded(then, named), 2.0)
    expected = then[1] if named and not tuned else min(max(before.token_budget, then[0]), then[2])
    assert after.incumbent.token_budget == expected
    assert knob_ranges(bounded(then, named)).hold(after.incumbent)
    assert (after.incumbent.generation > before.generation) == (not after.incumbent.same(before))
    assert obeying(after, bounded(then, named), 3.0) == after


def test_a_changed_start_of_p_heavy_chunks_is_one_of_d_heavy_ones_too() -> None:
    record = first_record(spec(), 0.0)
    after = obeying(record, spec({"prefillHeavyChunk": {"start": 96}}), 1.0).incumbent
    assert (after.prefill_heavy_chunk, after.decode_heavy_chunk) == (96, 96)
