"""The published run of two clients by which virtual token counters are judged (Sheng et al.)."""

import random

from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import FirstCome, Growth, Policies, TokenCounters
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.scheduler import Scheduler

TOKENS, POOL_TOKENS, BLOCK_SIZE = 256, 10_000, 16
REQUESTS_PER_MINUTE = {"slow": 90, "fast": 180}
INPUT_WEIGHT, OUTPUT_WEIGHT = 1, 2
TWO_CLIENT_BOUND = 2 * max(INPUT_WEIGHT * TOKENS, OUTPUT_WEIGHT * POOL_TOKENS)


def two_client_gaps(ranking: TokenCounters | FirstCome, seconds: float, seed: int | None = None) -> list[float]:
    """Difference between what the two were served, in weighted tokens, after each iteration.

    Both send 256 prompt tokens for 256 output tokens. Iterations take so long that about 140 requests a minute are
    served, as in the published run: half of that is less than either client sends, so both are backlogged. With a seed,
    each request comes at any time of the interval at whose beginning it would come without.
    """
    draw = None if seed is None else random.Random(seed)
    policies = Policies(ranking=ranking, growth=Growth(reserve="all"))
    knobs = PodKnobs(generation=1, token_budget=4096, chunk_size=4096, running_sequences=64, policies=policies)
    ceilings = Ceilings(token_budget=4096, chunk_size=4096, running_sequences=64)
    scheduler = Scheduler(BlockPool(POOL_TOKENS // BLOCK_SIZE, BLOCK_SIZE), knobs, ceilings)
    served = dict.fromkeys(REQUESTS_PER_MINUTE, 0)
    came = dict.fromkeys(REQUESTS_PER_MINUTE, 0)
    late = {tenant: draw.random() if draw else 0.0 for tenant in REQUESTS_PER_MINUTE}
    gaps = []
    now_s = 0.0
    while now_s < seconds:
        for tenant, per_minute in REQUESTS_PER_MINUTE.items():
            while (came[tenant] + late[tenant]) * 60 <= now_s * per_minute:
                came[tenant] += 1
                late[tenant] = draw.random() if draw else 0.0
                scheduler.add(f"{tenant} {came[tenant]}", TOKENS, TOKENS, arrival_s=now_s, tenant=tenant)
        plan = scheduler.plan(now_s)
        for request in plan.admitted:
            served[request.account.tenant] += INPUT_WEIGHT * request.prompt_tokens
        generated = {request: request.generated for request in [*plan.decodes, *(r for r, _ in plan.prefills)]}
        scheduler.complete(plan)
        for request, before in generated.items():
            served[request.account.tenant] += OUTPUT_WEIGHT * (request.generated - before)
        now_s += 0.03 + 0.0001 * plan.tokens
        gaps.append(float(abs(served["slow"] - served["fast"])))
    return gaps
