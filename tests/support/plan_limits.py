"""The four limits that every plan keeps, whatever policies made it."""

from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.scheduler import Scheduler


def check_limits(scheduler: Scheduler, plan: Plan) -> None:
    """Token budget, predicted time, resident KV and running sequences of a plan that was just made or amended."""
    knobs, policies, pool = plan.knobs, plan.knobs.policies, scheduler.pool
    work = [(request, 1) for request in plan.decodes] + list(plan.prefills)
    assert plan.tokens == sum(tokens for _, tokens in work) <= knobs.token_budget
    assert plan.load.context_tokens == sum(request.computed for request in plan.decodes)
    assert all(0 < tokens <= knobs.chunk_size for _, tokens in plan.prefills)
    assert all(request.computed + tokens <= len(request.blocks) * pool.block_size for request, tokens in work)
    if plan.admitted:
        running = list(scheduler.running.values())
        assert len(running) <= knobs.running_sequences
        assert scheduler.kv.promised == sum(max(0, r.reserved_blocks - len(r.blocks)) for r in running)
        # Who is admitted leaves free what the running ones are expected to grow by, or at least a block for each.
        spare = len(running) - 1 if policies.growth.reserve == "none" else 0
        assert pool.free >= scheduler.kv.promised + spare
    adaptive = policies.adaptive_chunk
    limits_s = [limit_s for limit_s in (policies.iteration_s, adaptive and adaptive.itl_s) if limit_s]
    if limits_s and scheduler.predictor.ready and plan.prefills:
        floor = adaptive.floor_tokens if adaptive else 1
        # Decodes run anyway, and beside them one prefill goes on by the floor.
        least = len(plan.prefills) == 1 and plan.prefills[0].tokens <= floor
        assert least or 0 < plan.predicted_s <= min(limits_s) * (1 + 1e-9)
