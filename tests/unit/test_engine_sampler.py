"""Tokens are drawn from the distribution that bias, penalties, temperature, top-k, top-p and min-p leave."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from leeway_engine.batch_rows import BatchRows
from leeway_engine.logit_changes import change_logits
from leeway_engine.messages import Sampling
from leeway_engine.sampler import Draws, sample, uniform_numbers
from leeway_engine.scheduling.request import Request
from leeway_engine.token_logprobs import token_logprobs

ROWS = 20_000


def frequencies(
    logits: torch.Tensor, temperature: float, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0
) -> torch.Tensor:
    """How often each token is drawn in many draws from one row of logits."""
    draws = Draws(
        temperature=np.full(ROWS, temperature, np.float32),
        top_p=np.full(ROWS, top_p, np.float32),
        top_k=np.full(ROWS, top_k, np.int64),
        min_p=np.full(ROWS, min_p, np.float32),
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
        ({"temperature": 1.0, "min_p": 0.3}, 3),
        ({"temperature": 1.0, "min_p": 1.0}, 1),
        ({"temperature": 0.5, "min_p": 0.3}, 2),
        ({"temperature": 1.0, "min_p": 0.3, "top_k": 2}, 2),
        ({"temperature": 1.0, "min_p": 0.2, "top_p": 0.8}, 3),
        ({"temperature": 0.0}, 1),
    ],
)
def test_draws_follow_the_distribution(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], kept: int, shortlist: int
) -> None:
    monkeypatch.setattr("leeway_engine.sampler.SHORTLIST", shortlist)
    likely = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15])
    expected = likely ** (1 / (settings["temperature"] or 1))
    expected[expected.argsort(descending=True)[kept:]] = 0
    expected /= expected.sum()
    drawn = frequencies(likely.log(), **settings)
    assert torch.allclose(drawn, expected, atol=0.015)
    assert ((drawn > 0) == (expected > 0)).all()


@pytest.mark.parametrize("vocabulary", [1500, 5000, 70_000])
def test_a_draw_among_tied_tokens_does_not_hang_on_what_its_mates_need(vocabulary: int) -> None:
    settings = [(1.0, 0, 0.0), (0.5, 0, 0.0), (0.9999, 0, 0.0), (1.0, 50, 0.0), (1.0, 1400, 0.0), (1.0, 0, 0.05)] * 20
    top_p, top_k, min_p = (np.array(values) for values in zip(*settings, strict=True))
    count = len(settings)
    draws = Draws(
        temperature=np.ones(count, np.float32),
        top_p=top_p.astype(np.float32),
        top_k=top_k,
        min_p=min_p.astype(np.float32),
        uniform=uniform_numbers(np.full(count, 3, np.uint64), np.arange(count)),
    )
    logits = torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(1)) * 2
    logits = logits.to(torch.bfloat16)
    alone = [
        sample(logits[place : place + 1], Draws(*(getattr(draws, name)[place : place + 1] for name in Draws.__slots__)))
        for place in range(count)
    ]
    assert sample(logits, draws).tolist() == torch.cat(alone).tolist()


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_k": -1},
        {"min_p": 1.1},
        {"repetition_penalty": 0},
        {"presence_penalty": float("nan")},
        {"frequency_penalty": float("inf")},
        {"logit_bias": {-1: 1.0}},
        {"logit_bias": {1: float("inf")}},
        {"logprobs": -1},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampling(**bad)


VOCABULARY = 12
BLOCK_SIZE = 4
tokens = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=10)
samplings = st.builds(
    Sampling,
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3]),
    presence_penalty=st.sampled_from([0.0, -1.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.5, 1.5]),
    logit_bias=st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-100, 100), max_size=3),
    logprobs=st.none() | st.integers(0, VOCABULARY + 1),
)


def naive_change(logits: list[float], prompt: list[int], output: list[int], sampling: Sampling) -> list[float]:
    changed = []
    for token_id, given_logit in enumerate(logits):
        logit = given_logit + sampling.logit_bias.get(token_id, 0.0)
        if token_id in prompt or token_id in output:
            logit = logit / sampling.repetition_penalty if logit > 0 else logit * sampling.repetition_penalty
        logit -= sampling.frequency_penalty * output.count(token_id)
        logit -= sampling.presence_penalty * (token_id in output)
        changed.append(logit)
    return changed


@given(st.lists(st.tuples(tokens, tokens, samplings), min_size=1, max_size=5), st.integers(0, 99))
def test_bias_penalties_and_logprobs_are_those_of_each_request_alone(
    requests: list[tuple[list[int], list[int], Sampling]], seed: int
) -> None:
    rows = BatchRows(8, 24, BLOCK_SIZE)
    entered = []
    for number, (prompt, output, sampling) in enumerate(requests):
        request = Request(str(number), len(prompt), 20, order=number)
        # A row that another request had before must not remember it.
        rows.enter(request, [1, 2], Sampling(presence_penalty=1, logit_bias={0: 9.0}, logprobs=3), seed=0)
        rows.leave(request)
        rows.enter(request, prompt + output, sampling, seed=0)
        entered.append(request)
    row = rows.of(entered)
    end = np.array([len(prompt) + len(output) for prompt, output, _ in requests])
    logits = torch.randn(len(requests), VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4
    before = logits.clone()

    changed = change_logits(logits, rows, row, end)
    expected = [
        naive_change(line, prompt, output, sampling)
        for line, (prompt, output, sampling) in zip(before.tolist(), requests, strict=True)
    ]
    torch.testing.assert_close(changed, torch.tensor(expected), atol=1e-3, rtol=1e-5)
    assert torch.equal(logits, before)

    drawn = changed.argmax(-1)
    got = token_logprobs(logits, drawn, rows.logprobs[row])
    likely = before.log_softmax(-1)
    for place, (_, _, sampling) in enumerate(requests):
        if sampling.logprobs is None:
            assert place not in got
            continue
        best = likely[place].sort(descending=True)
        count = min(sampling.logprobs, VOCABULARY)
        assert got[place].token_id == drawn[place]
        assert got[place].logprob == pytest.approx(likely[place, drawn[place]].item(), abs=1e-5)
        assert got[place].top_ids == tuple(best.indices[:count].tolist())
        assert got[place].top_logprobs == pytest.approx(best.values[:count].tolist(), abs=1e-5)


def test_requests_without_bias_and_penalties_keep_their_very_logits() -> None:
    rows = BatchRows(2, 8, BLOCK_SIZE)
    request = Request("a", 1, 4, order=0)
    rows.enter(request, [3], Sampling(min_p=0.5, top_k=3), seed=0)
    logits = torch.randn(1, VOCABULARY)
    assert change_logits(logits, rows, rows.of([request]), np.array([1])) is logits
