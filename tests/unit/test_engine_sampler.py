"""Tokens are drawn from the distribution that temperature, top-k and top-p leave."""

import numpy as np
import pytest
import torch
from leeway_engine.messages import Sampling
from leeway_engine.sampler import Draws, sample, uniform_numbers

ROWS = 20_000


def frequencies(logits: torch.Tensor, temperature: float, top_p: float = 1.0, top_k: int = 0) -> torch.Tensor:
    """How often each token is drawn in many draws from one row of logits."""
    draws = Draws(
        temperature=np.full(ROWS, temperature, np.float32),
        top_p=np.full(ROWS, top_p, np.float32),
        top_k=np.full(ROWS, top_k, np.int64),
        uniform=uniform_numbers(np.full(ROWS, 3, np.uint64), np.arange(ROWS)),
    )
    return sample(logits.expand(ROWS, -1), draws).bincount(minlength=len(logits)) / ROWS


def test_uniform_numbers_are_uniform_and_hang_on_seed_and_position() -> None:
    seeds = np.arange(100, dtype=np.uint64).repeat(100)
    numbers = uniform_numbers(seeds, np.tile(np.arange(100), 100))
    assert len(set(numbers)) == len(numbers)
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert (abs(counts - 1000) < 120).all()


@pytest.mark.parametrize("shortlist", [1, 2, 1024])
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"temperature": 1.0}, 5),
        ({"temperature": 0.5}, 5),
        ({"temperature": 1.0, "top_k": 3}, 3),
        ({"temperature": 1.0, "top_p": 0.6}, 2),
        ({"temperature": 1.0, "top_p": 0.95}, 4),
        ({"temperature": 1.0, "top_p": 1e-6}, 1),
        ({"temperature": 1.0, "top_k": 2, "top_p": 0.9}, 2),
        ({"temperature": 1.0, "top_k": 99}, 5),
        ({"temperature": 0.0}, 1),
    ],
)
def test_draws_follow_the_distribution(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, float], kept: int, shortlist: int
) -> None:
    monkeypatch.setattr("leeway_engine.sampler.SHORTLIST", shortlist)
    likely = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15])
    expected = likely ** (1 / (settings["temperature"] or 1))
    expected[expected.argsort(descending=True)[kept:]] = 0
    expected /= expected.sum()
    drawn = frequencies(likely.log(), **settings)  # type: ignore[arg-type]
    assert torch.allclose(drawn, expected, atol=0.015)
    assert ((drawn > 0) == (expected > 0)).all()


@pytest.mark.parametrize("bad", [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_k": -1}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampling(**bad)  # type: ignore[arg-type]
