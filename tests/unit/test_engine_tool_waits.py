"""An agent's next step finds the KV of the step before, and no token of any answer changes for it."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.messages import GenerationRequest, Sampling
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.weights import load_decoder
from reference_tokens import BLOCK_SIZE, random_prompts, save_model

OUTPUT = 20
OPTIONS = EngineOptions(
    kv_blocks=16,
    knobs=PodKnobs(generation=1, token_budget=64, chunk_size=16, running_sequences=4),
    ceilings=Ceilings(token_budget=64, chunk_size=64, running_sequences=4),
    block_size=BLOCK_SIZE,
)
PROMPT, OTHER, TOOL = random_prompts([48, 60, 10], 211, seed=3)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("model")
    save_model("llama-tied", folder)
    return load_decoder(folder, torch.float64)


class Pod:
    """An engine and its clock."""

    def __init__(self, decoder: Decoder, options: EngineOptions = OPTIONS) -> None:
        self.now_s = 0.0
        self.engine = Engine(decoder, options, clock=lambda: self.now_s)
        self.asked = 0
        self.answers: dict[str, list[int]] = {}
        self.cached: dict[str, int] = {}

    def ask(self, prompt: list[int], output: int = OUTPUT, wait_s: float = 0.0) -> str:
        name = str(self.asked)
        self.asked += 1
        self.answers[name] = []
        request = GenerationRequest(
            name, prompt, output, Sampling(temperature=0), arrival_s=self.now_s, tool_wait_s=wait_s
        )
        self.engine.add(request)
        return name

    def step(self) -> None:
        for event in self.engine.step():
            self.answers[event.request_id] += event.token_ids
            self.cached[event.request_id] = event.cached_tokens

    def serve(self, prompt: list[int], output: int = OUTPUT, wait_s: float = 0.0) -> str:
        name = self.ask(prompt, output, wait_s)
        while self.engine.has_work:
            self.step()
        return name

    def check_all_is_free(self) -> None:
        reading = self.engine.stats()
        assert (reading.tool_waits, reading.kv_blocks_free) == (0, reading.kv_blocks_total)


@pytest.mark.parametrize(("wait_s", "cached"), [(0.0, 0), (30.0, 64)])
def test_the_next_step_after_a_tool_finds_prompt_and_answer_under_pressure(
    decoder: Decoder, wait_s: float, cached: int
) -> None:
    pod, alone = Pod(decoder), Pod(decoder, replace(OPTIONS, prefix_reuse=False))
    answer = pod.answers[pod.serve(PROMPT, wait_s=wait_s)]
    for seed in range(4):
        pod.serve(random_prompts([100], 211, seed=100 + seed)[0], output=30)
    following = [*PROMPT, *answer, *TOOL]
    step = pod.serve(following)
    assert pod.cached[step] == cached
    assert pod.answers[step] == alone.answers[alone.serve(following)]
    pod.check_all_is_free()


def test_a_step_that_never_comes_keeps_nothing_for_longer_than_it_asked_for(decoder: Decoder) -> None:
    pod = Pod(decoder)
    pod.serve(PROMPT, wait_s=30.0)
    kept = pod.engine.stats()
    assert (kept.tool_waits, kept.kv_blocks_total - kept.kv_blocks_free) == (1, 4)
    pod.now_s = 10.0
    assert pod.engine.tool_waits_end_in_s == 20.0
    pod.now_s = 30.0
    pod.engine.end_tool_waits()
    assert pod.engine.tool_waits_end_in_s is None
    pod.check_all_is_free()


def test_kept_blocks_give_way_before_a_running_request_is_preempted(decoder: Decoder) -> None:
    pod = Pod(decoder)
    pod.serve(PROMPT, wait_s=30.0)
    first, second = pod.ask(OTHER, output=60), pod.ask(OTHER[:-1], output=60)
    while pod.engine.has_work:
        pod.step()
    assert (len(pod.answers[first]), len(pod.answers[second])) == (60, 60)
    assert pod.engine.stats().preemptions == 0
    pod.check_all_is_free()


def test_an_answer_that_ends_at_a_stop_string_is_kept_too(decoder: Decoder) -> None:
    pod = Pod(decoder)
    name = pod.ask(PROMPT, wait_s=30.0)
    while len(pod.answers[name]) < 18:
        pod.step()
    pod.engine.stop(name)
    assert not pod.engine.has_work
    assert pod.engine.stats().tool_waits == 1
    # The stop string ended three tokens before the loop heard of it.
    step = pod.serve([*PROMPT, *pod.answers[name][:-3], *TOOL])
    assert pod.cached[step] == 48
    pod.check_all_is_free()


def test_without_prefix_reuse_there_is_nothing_to_keep(decoder: Decoder) -> None:
    pod = Pod(decoder, replace(OPTIONS, prefix_reuse=False))
    pod.serve(PROMPT, wait_s=30.0)
    pod.check_all_is_free()


@pytest.mark.parametrize("seed", range(2))
def test_a_storm_of_agents_and_cancels_leaks_no_block_and_changes_no_token(decoder: Decoder, seed: int) -> None:
    draw = Random(seed)
    alone = Pod(decoder, replace(OPTIONS, prefix_reuse=False))
    pod = Pod(decoder, replace(OPTIONS, kv_blocks=11, swap_blocks=4))
    prompts: dict[str, list[int]] = {}
    hits = gone = most_waits = 0
    for _ in range(160):
        pod.now_s += 0.1
        done = [name for name in prompts if len(pod.answers[name]) == 6]
        if draw.random() < 0.15:
            prompt = PROMPT[: draw.choice((17, 32, 40))]
            prompts[pod.ask(prompt, 6, wait_s=draw.choice((0.0, 1.0, 9.0)))] = prompt
        if done and draw.random() < 0.2:
            before = draw.choice(done)
            prompt = [*prompts[before], *pod.answers[before], *TOOL[: draw.randint(1, 9)]]
            if len(prompt) < 110:
                prompts[pod.ask(prompt, 6, wait_s=5.0)] = prompt
        if prompts and draw.random() < 0.1:
            name = draw.choice(list(prompts))
            (pod.engine.cancel if draw.random() < 0.5 else pod.engine.stop)(name)
            gone += len(pod.answers[name]) < 6
        pod.step()
        most_waits = max(most_waits, pod.engine.stats().tool_waits)
    while pod.engine.has_work:
        pod.step()
    for name in draw.sample(sorted(prompts), 8):
        hits += pod.cached.get(name, 0) > 0
        expected = alone.answers[alone.serve(prompts[name], 6)]
        assert pod.answers[name] == expected[: len(pod.answers[name])]
    assert min(hits, gone, most_waits) > 0
    pod.now_s += 1000
    pod.engine.end_tool_waits()
    pod.check_all_is_free()
    assert pod.engine.stats().swap_blocks_used == 0
