"""How long a request can be made to wait, in iterations, against the bound that follows from the settings.

Each ranking, set so that nobody ages, with each protection, and every other policy with rankings and protections in
turn: 30 simulated minutes in which floods of long prompts, short ones, long outputs and better classes, a loud tenant
and bursts take turns; and each ranking for a part of three real minutes of the same on a real engine. A wait lasts from
a request's arrival to its first chunk, a pause from one token to the next; bounds follow from each run's settings, and
the figures are of the runs that came nearest to theirs. Standard error has the spread over the seeds. Options:
--minutes N, simulated; --seconds N, real; --seeds N, of the simulated.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from adversary import LONGEST_TOKENS, Adversary, Ask
from leaks import leaks, scheduler_leaks
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import (
    AdaptiveChunk,
    AdmissionLimits,
    EffectivePriority,
    FirstCome,
    Growth,
    Policies,
    PrefillCap,
    Protection,
    ShortestPrompt,
    SkipJoin,
    Slack,
    Tenancy,
    TokenCounters,
    Victim,
)
from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.messages import GenerationRequest, Sampling
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.weights import load_decoder
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.protection import longest_pause, longest_wait
from leeway_engine.scheduling.request import RequestRejected
from leeway_engine.scheduling.scheduler import Scheduler
from serving import tiny_model
from waits import Waits

QUEUE, RUNNING, BLOCK_SIZE = 8, 8, 16
KV_BLOCKS = RUNNING * LONGEST_TOKENS // BLOCK_SIZE // 3
CEILINGS = Ceilings(token_budget=64, chunk_size=32, running_sequences=RUNNING)
RANKINGS = (
    FirstCome(),
    ShortestPrompt(ageing_tokens=0.001),
    EffectivePriority(class_points={"gold": 1e9}, age_points=0.001),
    SkipJoin(first_quantum_tokens=16, promotion_iterations=1_000_000),
    TokenCounters(),
)
PROTECTIONS = {
    "as shipped": (Protection(), Growth()),
    "early, growth kept": (Protection(boost_iterations=10, overdue_iterations=100), Growth(reserve="all")),
    "decodes in turns": (Protection(prefill_percent=50, decode_cap=2, boost_iterations=20), Growth()),
    "in turns, growth kept": (Protection(decode_cap=3, overdue_iterations=50), Growth(reserve="all")),
}
ADAPTIVE = {"adaptive_chunk": AdaptiveChunk(itl_s=0.022, floor_tokens=4)}
"""An iteration takes 0.02 s and more, so the floor is often all that a prefill gets."""
TIMED = {"iteration_s": 0.022}
CAPPED = {"prefill_cap": PrefillCap(prefills=2, chunk_tokens=16)}
REJECTED = {"slack": Slack(unreachable="reject")}
BY_COST = {"victim": Victim()}
OTHERS: dict[str, dict[str, Any]] = {
    "adaptive chunks": ADAPTIVE,
    "timed iterations": TIMED,
    "capped prefills": CAPPED,
    "the late downgraded": {"slack": Slack()},
    "the late rejected": REJECTED,
    "victims by cost": BY_COST,
    "admission": {"admission": AdmissionLimits(tenant_requests=6, queue_delay_s=1.0)},
    "residency charged": {"tenancy": Tenancy(residency_weight=0.01)},
    "all of them": {**ADAPTIVE, **TIMED, **CAPPED, **REJECTED, **BY_COST},
}
TURNS = 2
"""Rankings, and protections, that each of these is run with."""
SWAP_BLOCKS = KV_BLOCKS // 2
"""Of host memory, in the runs with other policies: the way back that a preempted request is likely to take."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run showed."""

    name: str
    iterations: int
    wait: int
    wait_bound: int
    pause: int
    pause_bound: int
    preemptions: int
    leaked_blocks: int

    @property
    def broken(self) -> bool:
        return self.wait > self.wait_bound or self.pause > self.pause_bound or self.leaked_blocks != 0


def knobs_of(policies: Policies) -> PodKnobs:
    return PodKnobs(generation=1, **CEILINGS.model_dump(), policies=policies)


def outcome(name: str, knobs: PodKnobs, scheduler: Scheduler, waits: Waits, leaked_blocks: int) -> Outcome:
    found = Outcome(
        name=name,
        iterations=scheduler.iterations,
        wait=waits.longest_wait,
        wait_bound=longest_wait(knobs, QUEUE, LONGEST_TOKENS),
        pause=waits.longest_pause,
        pause_bound=longest_pause(knobs, QUEUE, LONGEST_TOKENS),
        preemptions=waits.preemptions,
        leaked_blocks=leaked_blocks,
    )
    print(found, file=sys.stderr)
    return found


def cost_s(load: Load) -> float:
    """Duration of an iteration: reading the weights, the tokens' share of computing, and reading the KV."""
    return 0.02 + 1e-4 * (load.prefill_tokens + load.decodes) + 1e-6 * load.context_tokens + 1e-7 * load.prefill_pairs


@dataclass(frozen=True, slots=True)
class Case:
    """Policies to simulate."""

    name: str
    policies: Policies
    swap_blocks: int = 0


def simulate(case: Case, seconds: float, seed: int) -> Outcome:
    """Run a pod on a clock that the cost of its iterations moves."""
    knobs = knobs_of(case.policies)
    scheduler = Scheduler(BlockPool(KV_BLOCKS, BLOCK_SIZE), knobs, CEILINGS, case.swap_blocks)
    waits, adversary = Waits(scheduler), Adversary(f"{case.name}, {seed}")
    now_s, came = 0.0, 0
    while now_s < seconds or scheduler.running or scheduler.waiting:
        if now_s < seconds:
            for ask in adversary.asks(now_s, QUEUE - len(scheduler.waiting)):
                came += 1
                # Admission may turn it away; a flood comes again.
                with suppress(RequestRejected):
                    add(scheduler, str(came), ask, now_s)
        plan = scheduler.plan(now_s)
        scheduler.complete(plan)
        waits.note(plan)
        took_s = cost_s(plan.load)
        scheduler.observe(plan, took_s)
        now_s += took_s
    waits.end()
    return outcome(case.name, knobs, scheduler, waits, scheduler_leaks(scheduler))


def add(scheduler: Scheduler, name: str, ask: Ask, now_s: float) -> None:
    scheduler.add(
        name,
        ask.prompt_tokens,
        ask.max_tokens,
        arrival_s=now_s,
        tenant=ask.tenant,
        slo_class=ask.slo_class,
        priority=ask.priority,
        deadline_s=None if ask.budget_s is None else now_s + ask.budget_s,
    )


def overload(name: str, policies: Policies, decoder: Decoder, seconds: float) -> Outcome:
    """Run a real engine, each flood for its part of the time."""
    knobs = knobs_of(policies)
    engine = Engine(decoder, EngineOptions(KV_BLOCKS, knobs, CEILINGS, BLOCK_SIZE, prefix_reuse=False))
    scheduler = engine._scheduler
    waits = followed(scheduler)
    adversary = Adversary(name, seconds / len(Adversary.PATTERNS))
    began_s, came = time.monotonic(), 0
    while (now_s := time.monotonic() - began_s) < seconds or engine.has_work:
        if now_s < seconds:
            for ask in adversary.asks(now_s, QUEUE - len(scheduler.waiting)):
                came += 1
                ask_engine(engine, str(came), ask)
        engine.step()
    waits.end()
    return outcome(name, knobs, scheduler, waits, leaks(engine))


def followed(scheduler: Scheduler) -> Waits:
    """Note each iteration that an engine books with its scheduler."""
    waits, book = Waits(scheduler), scheduler.book

    def note(plan: Plan) -> None:
        book(plan)
        waits.note(plan)

    scheduler.book = note
    return waits


def ask_engine(engine: Engine, name: str, ask: Ask) -> None:
    now_s = time.monotonic()
    request = GenerationRequest(
        name,
        [(7 * place + len(name)) % 256 for place in range(ask.prompt_tokens)],
        ask.max_tokens,
        Sampling(temperature=0),
        arrival_s=now_s,
        tenant=ask.tenant,
        slo_class=ask.slo_class,
        priority=ask.priority,
        deadline_s=None if ask.budget_s is None else now_s + ask.budget_s,
    )
    engine.add(request)


def cases() -> Iterator[Case]:
    for ranking in RANKINGS:
        for name, (protection, growth) in PROTECTIONS.items():
            yield Case(f"{ranking.kind}, {name}", Policies(ranking=ranking, protection=protection, growth=growth))
    turns = zip(cycle(RANKINGS), cycle(PROTECTIONS.items()), strict=False)
    for other, settings in OTHERS.items():
        for ranking, (name, (protection, growth)) in islice(turns, TURNS):
            policies = Policies(ranking=ranking, protection=protection, growth=growth, **settings)
            yield Case(f"{ranking.kind}, {name}, {other}", policies, SWAP_BLOCKS)


def simulations(seconds: float, seeds: int) -> Iterator[Outcome]:
    for case in cases():
        found = [simulate(case, seconds, seed) for seed in range(seeds)]
        waits, pauses = [one.wait for one in found], [one.pause for one in found]
        spread = f"waits {min(waits)} to {max(waits)}, pauses {min(pauses)} to {max(pauses)}"
        print(f"{case.name}: {spread} over {seeds} seeds", file=sys.stderr)
        yield from found


def overloads(seconds: float) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        decoder = load_decoder(tiny_model(Path(folder) / "model"), torch.float32)
    for number, ranking in enumerate(RANKINGS):
        name, (protection, growth) = list(PROTECTIONS.items())[number % len(PROTECTIONS)]
        policies = Policies(ranking=ranking, protection=protection, growth=growth)
        yield overload(f"{ranking.kind}, {name}, real", policies, decoder, seconds / len(RANKINGS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    outcomes = [*simulations(options.minutes * 60, options.seeds), *overloads(options.seconds)]
    by_wait = max(outcomes, key=lambda one: one.wait / one.wait_bound)
    by_pause = max(outcomes, key=lambda one: one.pause / one.pause_bound)
    figures = {
        "max_wait_iterations": by_wait.wait,
        "bound": by_wait.wait_bound,
        "wait_run": by_wait.name,
        "max_pause_iterations": by_pause.pause,
        "pause_bound": by_pause.pause_bound,
        "pause_run": by_pause.name,
        "iterations": sum(one.iterations for one in outcomes),
        "preemptions": sum(one.preemptions for one in outcomes),
        "leaked_blocks": sum(one.leaked_blocks for one in outcomes),
    }
    print(json.dumps(figures))
    sys.exit(any(one.broken for one in outcomes))


if __name__ == "__main__":
    main()
