"""How long the scheduler takes for an iteration with 256 requests running and 1,000 waiting, as its policies cost most.

A step is what the engine loop does for an iteration beside the model: take in arrivals, plan, book the tokens, end what
is finished, and collect garbage when that is due. The costliest composition of policies, memory and tenants is searched
for: from all of them switched on, each choice in turn becomes the one with the largest median, until none changes; what
does not let 256 run is left out. It is then timed with several seeds; the figures are of the slowest. The run is void
when other processes took a part of the cores. Options: --steps N, --seeds N.
"""

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cores import CoreWatch, refuse_if_taken
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
from leeway_core.verdict import quantile
from leeway_engine.garbage import Garbage
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.request import Request
from leeway_engine.scheduling.scheduler import Scheduler

RUNNING, WAITING = 256, 1000
BUDGET, CHUNK, BLOCK_SIZE = 2048, 512, 16
PROMPT, OUTPUT = (16, 512), (64, 512)
FOLLOW_UP = (16, 128)
"""Prompt tokens of a request that goes on after a tool, beyond what was said before."""
WARM_UP, TRIAL = 1200, 500
ITERATION_S, MOVE_S = 0.03, 2e-5
LIMITS = AdmissionLimits(
    waiting_requests=5000,
    tenant_requests=5000,
    tenant_waiting_tokens=10**9,
    queue_delay_s=1e9,
    upstream_delay_s=1e9,
    kv_percent=1000,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What one choice sets, of policies and of what the pod and its clients are like."""

    policies: Mapping[str, Any] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)


CHOICES: dict[str, dict[str, Setting]] = {
    "ranking": {
        ranking.kind: Setting({"ranking": ranking})
        for ranking in (
            EffectivePriority(class_points={"chat": 10.0}, urgency_horizon_s=30.0),
            FirstCome(),
            ShortestPrompt(),
            SkipJoin(),
            TokenCounters(),
        )
    },
    "chunk": {
        "adaptive chunk": Setting({"adaptive_chunk": AdaptiveChunk(itl_s=0.05)}),
        "fixed chunk": Setting(),
    },
    "time": {"timed": Setting({"iteration_s": 0.06}), "untimed": Setting()},
    "prefills": {"capped prefills": Setting({"prefill_cap": PrefillCap()}), "any prefills": Setting()},
    "protection": {
        "protection": Setting({"protection": Protection()}),
        "decodes in turns": Setting({"protection": Protection(decode_cap=128)}),
        "no protection": Setting(),
    },
    # Little is kept for growth, so that KV is short and the running sequences are at their limit too.
    "growth": {
        "expected growth": Setting({"growth": Growth(reserve="expected", quantile_percent=10)}),
        "all growth": Setting({"growth": Growth(reserve="all")}),
        "no growth": Setting(),
    },
    "slack": {
        "late downgraded": Setting({"slack": Slack()}),
        "late rejected": Setting({"slack": Slack(unreachable="reject")}),
        "late served": Setting(),
    },
    "admission": {"admission limits": Setting({"admission": LIMITS}), "no limits": Setting()},
    "victim": {"victim by cost": Setting({"victim": Victim()}), "victim by ranking": Setting()},
    "charge": {
        "residency charged": Setting({"tenancy": Tenancy(residency_weight=0.001)}),
        "tokens charged": Setting(),
    },
    "tool waits": {
        "tool waits": Setting(pod={"tool_wait_s": 300.0}),
        "no tool waits": Setting(),
    },
    "swap": {"swap": Setting(pod={"swap_blocks": 4000}), "no swap": Setting()},
    "kv": {"short KV": Setting(pod={"kv_tokens": 500}), "ample KV": Setting(pod={"kv_tokens": 2000})},
    "tenants": {
        "200 tenants": Setting(pod={"tenants": 200}),
        "1 tenant": Setting(pod={"tenants": 1}),
        "5000 tenants": Setting(pod={"tenants": 5000}),
    },
}
"""The first of each is what the search begins with."""

Composition = tuple[str, ...]
"""One choice of each kind, in their order."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What a pod and its clients are like."""

    kv_tokens: int = 500
    """For each running sequence."""
    swap_blocks: int = 0
    tenants: int = 1
    tool_wait_s: float = 0.0


class Traffic:
    """Keeps the queue at its length with requests of seeded sizes, tenants, classes and deadlines."""

    def __init__(self, composition: Composition, seed: int) -> None:
        settings = [CHOICES[kind][choice] for kind, choice in zip(CHOICES, composition, strict=True)]
        policies = Policies(**{name: value for setting in settings for name, value in setting.policies.items()})
        self.pod = Pod(**{name: value for setting in settings for name, value in setting.pod.items()})
        sizes = {"token_budget": BUDGET, "chunk_size": CHUNK, "running_sequences": RUNNING}
        knobs = PodKnobs(generation=1, **sizes, policies=policies)
        pool = BlockPool(RUNNING * self.pod.kv_tokens // BLOCK_SIZE, BLOCK_SIZE)
        self.scheduler = Scheduler(pool, knobs, Ceilings(**sizes), self.pod.swap_blocks)
        self.draw = random.Random(seed)
        self.now_s = 0.0
        self.came = 0
        self.followed: set[Request] = set()

    def step(self) -> float:
        """Run one iteration and return the seconds that the scheduler took for it."""
        scheduler = self.scheduler
        self.now_s += ITERATION_S
        arrivals = [self._arrival() for _ in range(WAITING - len(scheduler.waiting))]
        began_s = time.perf_counter()
        for arrival in arrivals:
            scheduler.add(**arrival)
        plan = scheduler.plan(self.now_s)
        scheduler.swap_cost.observe(len(plan.moves), MOVE_S * len(plan.moves))
        scheduler.observe(plan, 0.01 + 2e-5 * plan.tokens)
        scheduler.complete(plan)
        return time.perf_counter() - began_s

    def _arrival(self) -> dict[str, Any]:
        draw = self.draw
        self.came += 1
        name = str(self.came)
        prompt, output = draw.randint(*PROMPT), draw.randint(*OUTPUT)
        # All prompts begin with the same two blocks.
        known = [b"common 0", b"common 1"]
        if before := self._before():
            known = before.keys
            prompt = before.known + draw.randint(*FOLLOW_UP)
        keys = known[: prompt // BLOCK_SIZE]
        keys += [f"{name} {place}".encode() for place in range(len(keys), (prompt + output) // BLOCK_SIZE)]
        return {
            "request_id": name,
            "prompt_tokens": prompt,
            "max_tokens": output,
            "arrival_s": self.now_s,
            "tenant": f"tenant-{draw.randrange(self.pod.tenants)}",
            "slo_class": draw.choice(("chat", "batch", "agent")),
            "deadline_s": self.now_s + draw.uniform(20, 400),
            "tool_wait_s": self.pod.tool_wait_s,
            "keys": keys,
        }

    def _before(self) -> Request | None:
        """Whom every other request goes on from, where one waits for a tool and its conversation is still short."""
        if self.came % 2:
            return None
        waits = (one for one in self.scheduler.tool_waits if one.known <= PROMPT[1] and one not in self.followed)
        if before := next(waits, None):
            self.followed.add(before)
        return before


class TooFewError(Exception):
    """A composition does not let as many run, or wait, as are to be measured."""


def measure(composition: Composition, steps: int, seed: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of a step, in µs."""
    traffic = Traffic(composition, seed)
    for _ in range(WARM_UP):
        traffic.step()
    # As the engine loop does once it has booted.
    garbage = Garbage()
    garbage.take_over()
    taken_us, running, waiting = [], 0.0, 0.0
    for _ in range(steps):
        began_s = time.perf_counter()
        garbage.collect_if_due()
        collecting_s = time.perf_counter() - began_s
        taken_us.append((collecting_s + traffic.step()) * 1e6)
        running += len(traffic.scheduler.running) / steps
        waiting += len(traffic.scheduler.waiting) / steps
    gc.unfreeze()
    gc.enable()
    if running <= RUNNING * 0.9 or waiting <= WAITING * 0.9:
        raise TooFewError(f"only {running:.0f} run and {waiting:.0f} wait")
    return quantile(taken_us, 50), quantile(taken_us, 99)


def described(composition: Composition) -> str:
    return ", ".join(composition)


def costliest() -> Composition:
    """Search for the composition whose steps take longest, by their median."""
    medians: dict[Composition, float] = {}

    def median_us(composition: Composition) -> float:
        if composition not in medians:
            try:
                medians[composition], p99_us = measure(composition, TRIAL, seed=0)
                figures = f"p50 {medians[composition]:.0f} µs, p99 {p99_us:.0f} µs"
            except TooFewError as error:
                medians[composition], figures = 0.0, str(error)
            print(f"{described(composition)}: {figures}", file=sys.stderr)
        return medians[composition]

    best: Composition = tuple(next(iter(choices)) for choices in CHOICES.values())
    before = None
    while best != before:
        before = best
        for place, choices in enumerate(CHOICES.values()):
            best = max([(*best[:place], choice, *best[place + 1 :]) for choice in choices], key=median_us)
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    cores = CoreWatch()
    composition = costliest()
    taken = [measure(composition, options.steps, 1 + seed) for seed in range(options.seeds)]
    p50s_us, p99s_us = ([round(of_seed[place], 1) for of_seed in taken] for place in range(2))
    print(f"medians {p50s_us} µs, 99th percentiles {p99s_us} µs", file=sys.stderr)
    figures = {
        "composition": described(composition),
        "step_us_p50": max(p50s_us),
        "step_us_p99": max(p99s_us),
        "step_us_p50_spread": [min(p50s_us), max(p50s_us)],
        "step_us_p99_spread": [min(p99s_us), max(p99s_us)],
    }
    refuse_if_taken(cores.others_share(), figures)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
