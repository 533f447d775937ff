"""The engine's garbage is collected between iterations, not in them."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from leeway_engine.garbage import PERIOD_S, Garbage


class Cycle:
    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def now_s() -> list[float]:
    return [100.0]


@pytest.fixture
def garbage(now_s: list[float]) -> Iterator[Garbage]:
    garbage = Garbage(lambda: now_s[0])
    garbage.take_over()
    yield garbage
    gc.unfreeze()
    gc.enable()


def test_what_refers_to_itself_goes_once_the_period_is_over(garbage: Garbage, now_s: list[float]) -> None:
    left = weakref.ref(Cycle())
    cycles = [Cycle() for _ in range(5000)]
    del cycles
    assert not garbage.collect_if_due()
    assert left() is not None, "nothing is collected on the way"
    now_s[0] += PERIOD_S
    assert garbage.collect_if_due()
    assert left() is None
    assert not garbage.collect_if_due(), "the next period has begun"
