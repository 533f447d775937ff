"""The predictor learns an iteration's duration from those before it, whatever they are like."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.verdict import quantile
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.predictor import UNLIMITED, Predictor

LOADS = st.builds(
    Load,
    decodes=st.integers(0, 256),
    context_tokens=st.integers(0, 200_000),
    prefill_tokens=st.integers(0, 4096),
    prefill_pairs=st.floats(0, 1e7),
)


def duration_s(load: Load, slowness: float = 1.0) -> float:
    """What iterations take by the published fit of attention and linear layers, in form."""
    return slowness * (
        0.01 + 2e-5 * load.decodes + 1e-7 * load.context_tokens + 5e-5 * load.prefill_tokens + 1e-9 * load.prefill_pairs
    )


def random_load(draw: random.Random, decodes: int = 64) -> Load:
    running = draw.randint(1, decodes)
    load = Load(running, running * draw.randint(50, 2000))
    return load.with_chunk(draw.randint(1, 2048), draw.randint(0, 4096)) if draw.random() < 0.5 else load


def taught(draw: random.Random, iterations: int = 300, noise: float = 0.0, slowness: float = 1.0) -> Predictor:
    predictor = Predictor()
    for _ in range(iterations):
        load = random_load(draw)
        predictor.observe(load, duration_s(load, slowness) * draw.uniform(1 - noise, 1 + noise))
    return predictor


def median_error(predictor: Predictor, draw: random.Random, slowness: float = 1.0) -> float:
    loads = [random_load(draw, decodes=128) for _ in range(101)]
    errors = sorted(abs(predictor.predict(load) / duration_s(load, slowness) - 1) for load in loads)
    return errors[50]


@pytest.mark.parametrize("slowness", [0.01, 1.0, 100.0])
def test_unseen_mixes_are_predicted_on_fast_and_on_slow_hardware(slowness: float) -> None:
    draw = random.Random(1)
    predictor = taught(draw, noise=0.1, slowness=slowness)
    assert median_error(predictor, draw, slowness) < 0.05


@pytest.mark.parametrize("slowness", [0.01, 1.0, 100.0])
def test_each_iteration_is_predicted_before_it_is_seen_nearly_as_well_as_its_noise_allows(slowness: float) -> None:
    draw, predictor, errors = random.Random(1), Predictor(), []
    for _ in range(300):
        load = random_load(draw)
        seconds = duration_s(load, slowness) * draw.uniform(0.9, 1.1)
        if predicted_s := predictor.predict(load):
            errors.append(abs(predicted_s - seconds) / seconds)
        predictor.observe(load, seconds)
    assert len(errors) == 284
    assert 0.02 < quantile(errors, 50) < 0.1
    assert quantile(errors, 50) < quantile(errors, 90) < 0.3


def test_a_cost_that_levels_off_after_a_few_tokens_is_followed() -> None:
    def cpu_s(tokens: int) -> float:
        return 0.02 + 0.005 * min(tokens, 8) + 0.0006 * tokens

    draw = random.Random(3)
    predictor = Predictor()
    for _ in range(300):
        tokens = draw.randint(1, 32)
        predictor.observe(Load(tokens, 100 * tokens), cpu_s(tokens) * draw.uniform(0.98, 1.02))
    for tokens in (1, 4, 8, 16, 32):
        assert predictor.predict(Load(tokens, 100 * tokens)) == pytest.approx(cpu_s(tokens), rel=0.04)


def test_nothing_is_predicted_before_enough_was_seen() -> None:
    predictor = taught(random.Random(1), iterations=15)
    assert not predictor.ready
    assert predictor.predict(Load(1, 10)) == 0.0
    assert predictor.largest_chunk(Load(1, 10), 0, 0.001) == UNLIMITED
    assert taught(random.Random(1), iterations=16).ready


def test_stalled_iterations_move_the_predictions_little() -> None:
    draw = random.Random(2)
    predictor = taught(draw)
    for _ in range(10):
        load = random_load(draw)
        predictor.observe(load, duration_s(load) * 50)
        for _ in range(20):
            load = random_load(draw)
            predictor.observe(load, duration_s(load))
    assert median_error(predictor, draw) < 0.1


def test_a_pod_that_becomes_slower_is_followed() -> None:
    draw = random.Random(3)
    predictor = taught(draw)
    for _ in range(1500):
        load = random_load(draw)
        predictor.observe(load, duration_s(load, 2.0))
    assert median_error(predictor, draw, 2.0) < 0.1


def test_a_load_that_never_varied_does_not_spoil_what_comes_after() -> None:
    draw = random.Random(4)
    predictor = Predictor()
    for _ in range(3000):
        predictor.observe(Load(16, 8000), duration_s(Load(16, 8000)) * draw.uniform(0.95, 1.05))
    assert predictor.predict(Load(16, 8000)) == pytest.approx(duration_s(Load(16, 8000)), rel=0.05)
    for _ in range(300):
        load = random_load(draw)
        predictor.observe(load, duration_s(load))
    assert median_error(predictor, draw) < 0.1


PREDICTOR = taught(random.Random(5))


@given(load=LOADS, context=st.integers(0, 8192), limit_s=st.floats(0.001, 2.0))
@settings(max_examples=100)
def test_the_largest_chunk_keeps_the_limit_and_one_token_more_breaks_it(
    load: Load, context: int, limit_s: float
) -> None:
    tokens = PREDICTOR.largest_chunk(load, context, limit_s)
    if tokens:
        assert PREDICTOR.predict(load.with_chunk(tokens, context)) <= limit_s * (1 + 1e-9)
    assert PREDICTOR.predict(load.with_chunk(tokens + 1, context)) > limit_s * (1 - 1e-9)


@given(
    loads=st.lists(st.tuples(LOADS, st.floats(1e-4, 10.0)), min_size=20, max_size=60),
    load=LOADS,
    more=st.integers(1, 100),
)
@settings(max_examples=30)
def test_more_work_never_seems_to_take_less_time(loads: list[tuple[Load, float]], load: Load, more: int) -> None:
    predictor = Predictor()
    for seen, seconds in loads:
        predictor.observe(seen, seconds)
    less = predictor.predict(load)
    assert 0 <= less < 1e6
    assert predictor.predict(load._replace(decodes=load.decodes + more)) >= less
    assert predictor.predict(load.with_chunk(more, 100)) >= less


@given(values=st.lists(st.integers(1, 5000), min_size=8, max_size=600), percent=st.integers(1, 100))
@settings(max_examples=50)
def test_expected_outputs_are_quantiles_of_the_last_ones(values: list[int], percent: int) -> None:
    lengths = OutputLengths()
    for value in values:
        lengths.observe("chat", value)
    last = sorted(values[-256:])
    expected = last[-(-percent * len(last) // 100) - 1]
    assert lengths.expected("chat", 10_000, percent) == expected
    assert lengths.expected("chat", 1, percent) == 1


def test_a_class_with_few_outputs_goes_by_all_of_them_and_without_any_by_the_limit() -> None:
    lengths = OutputLengths()
    assert lengths.expected("new", 77) == 77
    for _ in range(20):
        lengths.observe("chat", 30)
    lengths.observe("new", 500)
    assert (lengths.expected("new", 1000), lengths.expected("unknown", 1000)) == (30, 30)
