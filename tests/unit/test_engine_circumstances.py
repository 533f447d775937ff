"""Drawn tokens and log-probabilities of a request, with all that they depend on, are its own whatever happens to it."""

import pytest
from engine_storm import Questions
from leeway_engine.engine import Engine
from leeway_engine.messages import GenerationRequest, Sampling, TokenLogprobs

OUTPUT = 24
SAMPLING = Sampling(
    temperature=1.5, top_p=0.95, frequency_penalty=0.4, repetition_penalty=1.1, logit_bias={7: 1.0}, logprobs=2, seed=11
)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Questions:
    return Questions(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def alone(questions: Questions) -> list[list[TokenLogprobs]]:
    """What the model says to each prompt that is asked by itself."""
    return [answers(questions.engine(), [prompt])[0] for prompt in questions.prompts]


def answers(engine: Engine, prompts: list[list[int]]) -> list[list[TokenLogprobs]]:
    """What an engine says to the prompts when all are asked at once."""
    said: dict[str, list[TokenLogprobs]] = {str(number): [] for number in range(len(prompts))}
    for name, prompt in zip(said, prompts, strict=True):
        engine.add(GenerationRequest(name, prompt, OUTPUT, SAMPLING))
    while engine.has_work:
        for event in engine.step():
            said[event.request_id] += event.logprobs
    return list(said.values())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunk_size": 1},
        {"chunk_size": 7},
        {"chunk_size": 8, "token_budget": 9},
        {"kv_blocks": 14},
        {"kv_blocks": 14, "swap_blocks": 14},
    ],
    ids=str,
)
def test_seeded_draws_penalties_and_logprobs_are_those_of_the_request_alone(
    questions: Questions, alone: list[list[TokenLogprobs]], options: dict[str, int]
) -> None:
    engine = questions.engine(**options)
    for _ in range(2):
        for together, own in zip(answers(engine, questions.prompts), alone, strict=True):
            assert [one.token_id for one in together] == [one.token_id for one in own]
            assert [one.top_ids for one in together] == [one.top_ids for one in own]
            assert [one.logprob for one in together] == pytest.approx([one.logprob for one in own], abs=1e-9)
    reading = engine.stats()
    assert (reading.preemptions > 0) == ("kv_blocks" in options)
    assert (reading.swapped_in_blocks > 0) == ("swap_blocks" in options)
    assert reading.prefix_hit_tokens > 0
