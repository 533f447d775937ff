"""How long the scheduler takes for an iteration with 256 requests running and 1,000 waiting.

A step is what the engine loop does for an iteration beside the model: take in arrivals, plan, book the tokens, end what
is finished. Each composition of policies is timed alone; the costliest is reported. Options: --steps N.
"""

import argparse
import gc
import json
import random
import sys
import time
from math import inf

from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import (
    AdaptiveChunk,
    AdmissionLimits,
    EffectivePriority,
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
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.scheduler import Scheduler

RUNNING, WAITING, TENANTS = 256, 1000, 200
BUDGET, CHUNK, BLOCK_SIZE = 2048, 512, 16
OUTPUT = (64, 512)
KV_TOKENS = 500
WARM_UP = 1200
ITERATION_S = 0.03
EVERYTHING = Policies(
    tenancy=Tenancy(residency_weight=0.001),
    adaptive_chunk=AdaptiveChunk(itl_s=0.05),
    iteration_s=0.06,
    prefill_cap=PrefillCap(),
    protection=Protection(),
    # Little is kept for growth, so that KV is short and the running sequences are at their limit too.
    growth=Growth(reserve="expected", quantile_percent=10),
    slack=Slack(),
    admission=AdmissionLimits(
        waiting_requests=5000,
        tenant_requests=5000,
        tenant_waiting_tokens=10**9,
        queue_delay_s=1e9,
        upstream_delay_s=1e9,
        kv_percent=1000,
    ),
    victim=Victim(),
)
COMPOSITIONS = {
    "first_come": Policies(),
    **{
        f"{ranking.kind} + all others": EVERYTHING.model_copy(update={"ranking": ranking})
        for ranking in (
            ShortestPrompt(),
            EffectivePriority(class_points={"chat": 10.0}, urgency_horizon_s=30.0),
            SkipJoin(),
            TokenCounters(),
        )
    },
}


class Traffic:
    """Keeps the queue at its length with requests of seeded sizes, tenants, classes and deadlines."""

    def __init__(self, policies: Policies) -> None:
        knobs = PodKnobs(
            generation=1, token_budget=BUDGET, chunk_size=CHUNK, running_sequences=RUNNING, policies=policies
        )
        ceilings = Ceilings(token_budget=BUDGET, chunk_size=CHUNK, running_sequences=RUNNING)
        self.scheduler = Scheduler(BlockPool(RUNNING * KV_TOKENS // BLOCK_SIZE, BLOCK_SIZE), knobs, ceilings)
        self.draw = random.Random(6)
        self.now_s = 0.0
        self.came = 0

    def step(self) -> float:
        """Run one iteration and return the seconds that the scheduler took for it."""
        scheduler, draw = self.scheduler, self.draw
        self.now_s += ITERATION_S
        arrivals = [
            (str(self.came + number), draw.randint(16, 512), draw.randint(*OUTPUT), draw.randrange(TENANTS))
            for number in range(WAITING - len(scheduler.waiting))
        ]
        deadlines_s = [self.now_s + draw.uniform(20, 400) for _ in arrivals]
        keys = [_keys(name, prompt) for name, prompt, _, _ in arrivals]
        classes = draw.choices(("chat", "batch", "agent"), k=len(arrivals))
        self.came += len(arrivals)
        began_s = time.perf_counter()
        for (name, prompt, output, tenant), deadline_s, slo_class, own in zip(
            arrivals, deadlines_s, classes, keys, strict=True
        ):
            scheduler.add(
                name,
                prompt,
                output,
                arrival_s=self.now_s,
                tenant=f"tenant-{tenant}",
                slo_class=slo_class,
                deadline_s=deadline_s,
                keys=own,
            )
        plan = scheduler.plan(self.now_s)
        scheduler.observe(plan, 0.01 + 2e-5 * plan.tokens)
        scheduler.complete(plan)
        return time.perf_counter() - began_s


def _keys(name: str, prompt: int) -> list[bytes]:
    """Keys of the prompt's blocks: all prompts begin with the same two blocks."""
    return [f"{name if place > 1 else 'common'} {place}".encode() for place in range(prompt // BLOCK_SIZE)]


def measure(policies: Policies, steps: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of a step, in µs."""
    traffic = Traffic(policies)
    for _ in range(WARM_UP):
        traffic.step()
    # As the engine loop does once it has booted.
    gc.collect()
    gc.freeze()
    taken_us = [traffic.step() * 1e6 for _ in range(steps)]
    running, waiting = len(traffic.scheduler.running), len(traffic.scheduler.waiting)
    assert running > RUNNING * 0.9, f"only {running} requests ran: this measures too little"
    assert waiting > WAITING * 0.9, f"only {waiting} requests waited: this measures too little"
    return quantile(taken_us, 50), quantile(taken_us, 99)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps
    worst = ("", -inf, -inf)
    for name, policies in COMPOSITIONS.items():
        p50_us, p99_us = measure(policies, steps)
        print(f"{name:32} p50 {p50_us:6.0f} µs, p99 {p99_us:6.0f} µs", file=sys.stderr)
        worst = max(worst, (name, p50_us, p99_us), key=lambda entry: entry[1])
    name, p50_us, p99_us = worst
    print(json.dumps({"composition": name, "step_us_p50": round(p50_us, 1), "step_us_p99": round(p99_us, 1)}))


if __name__ == "__main__":
    main()
