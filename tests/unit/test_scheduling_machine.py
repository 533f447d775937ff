"""After any storm of arrivals, cancels, knob pushes, preemptions and swaps the scheduler keeps its promises."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_engine.scheduling.block_keys import KeySpace
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import FinishReason, Request, RequestRejected, State
from leeway_engine.scheduling.scheduler import Scheduler

BLOCKS, BLOCK_SIZE, MOST_RUNNING, SWAP_BLOCKS = 12, 4, 5, 6
KEYS = KeySpace(BLOCK_SIZE, model="m")
CEILINGS = Ceilings(token_budget=32, chunk_size=32, running_sequences=MOST_RUNNING)


class SchedulerMachine(RuleBasedStateMachine):
    """Drives the scheduler as the engine does, with a cancel at every border."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        knobs = PodKnobs(generation=1, token_budget=8, chunk_size=3, running_sequences=4)
        self.scheduler = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), knobs, CEILINGS, SWAP_BLOCKS)
        self.requests: list[Request] = []
        self.plan: Plan | None = None
        self.pushed = knobs

    @rule(target=names, prompt=st.integers(1, 30), output=st.integers(1, 30))
    def arrive(self, prompt: int, output: int) -> str:
        name = f"r{len(self.requests)}"
        if prompt + output - 1 > BLOCKS * BLOCK_SIZE:
            with pytest.raises(RequestRejected):
                self.scheduler.add(name, prompt, output)
        else:
            request = self.scheduler.add(name, prompt, output)
            # All prompts begin alike, and answers go on differently.
            KEYS.extend(request.keys, [*range(prompt), *[1000 + len(self.requests)] * output])
            self.requests.append(request)
        return name

    @rule(name=consumes(names))
    def cancel(self, name: str) -> None:
        request = self.scheduler.cancel(name)
        if request is not None:
            assert request.finish_reason is FinishReason.CANCEL
        assert self.scheduler.cancel(name) is None

    @rule(spare=st.integers(-1, 30), chunk=st.integers(1, 40), running=st.integers(1, 6), step=st.integers(0, 2))
    def push_knobs(self, spare: int, chunk: int, running: int, step: int) -> None:
        generation, budget = self.pushed.generation + step, max(1, running + spare)
        knobs = PodKnobs(generation=generation, token_budget=budget, chunk_size=chunk, running_sequences=running)
        reply = self.scheduler.accept(knobs)
        allowed = step > 0 and budget <= 32 and chunk <= 32 and running <= min(MOST_RUNNING, budget)
        assert (reply.refusal is None) == allowed
        self.pushed = knobs if allowed else self.pushed
        assert reply.accepted == self.pushed

    @rule()
    def make_plan(self) -> None:
        if self.plan is not None:
            return
        held = len(self.scheduler.running)
        decoding = {r for r in self.scheduler.running.values() if r.state is State.DECODING}
        plan = self.plan = self.scheduler.plan()
        assert plan.knobs == self.scheduler.enforced == self.pushed
        assert plan.tokens <= plan.knobs.token_budget
        assert len(self.scheduler.running) <= max(held, plan.knobs.running_sequences)
        assert all(0 < chunk.tokens <= plan.knobs.chunk_size for chunk in plan.prefills)
        for victim in plan.preempted:
            kept = [request for request in self.scheduler.running.values() if request not in plan.admitted]
            assert all(request.order < victim.order for request in kept)
        if plan.admitted:
            others = len(self.scheduler.running) - 1
            assert self.scheduler.pool.free >= others, "each that may grow keeps a block to grow into"
        scheduled = plan.decodes + [chunk.request for chunk in plan.prefills]
        assert len(set(scheduled)) == len(scheduled)
        assert scheduled or not self.scheduler.running
        assert self.scheduler.running or not self.scheduler.waiting
        for request, tokens in [(r, 1) for r in plan.decodes] + list(plan.prefills):
            assert request.computed + tokens <= len(request.blocks) * BLOCK_SIZE
        kept = {request for request in decoding if request.state is State.DECODING}
        assert len(plan.decodes) == min(len(decoding), plan.knobs.token_budget) or plan.preempted
        assert kept == set(plan.decodes) or len(decoding) > plan.knobs.token_budget

    @rule(iterations=st.integers(1, 12))
    def iterate(self, iterations: int) -> None:
        for _ in range(iterations):
            self.make_plan()
            if self.plan is not None:
                self.scheduler.complete(self.plan)
            self.plan = None

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        if self.plan is None:
            return
        plan, self.plan = self.plan, None
        running = [r for r in plan.decodes if r.state is State.DECODING]
        before = {r: r.generated for r in running}
        stopped = data.draw(st.sets(st.sampled_from(running), max_size=1)) if running else set()
        self.scheduler.complete(plan, stopped)
        for request, generated in before.items():
            assert request.generated == generated + 1
            if request in stopped:
                assert request.finish_reason is FinishReason.STOP
            elif request.generated == request.max_tokens:
                assert request.finish_reason is FinishReason.LENGTH

    @invariant()
    def no_block_is_lost(self) -> None:
        held = {block for request in self.scheduler.running.values() for block in request.blocks}
        assert self.scheduler.pool.free + len(held) == BLOCKS
        swapped = [block for request in self.scheduler.waiting.values() for block in request.swapped]
        assert len(set(swapped)) == len(swapped)
        assert self.scheduler.kv.host.free + len(swapped) == SWAP_BLOCKS

    @invariant()
    def the_queue_is_in_order_of_arrival(self) -> None:
        orders = [request.order for request in self.scheduler.waiting.values()]
        assert orders == sorted(orders)

    @invariant()
    def each_request_is_where_its_state_says(self) -> None:
        for request in self.requests:
            running = self.scheduler.running.get(request.request_id) is request
            waiting = self.scheduler.waiting.get(request.request_id) is request
            assert running == (request.state in (State.PREFILLING, State.DECODING))
            assert waiting == (request.state in (State.WAITING, State.PREEMPTED))
            assert running or not request.blocks
            assert request.state is not State.PREEMPTED or request.swapped or request.computed == 0
            assert (request.finish_reason is None) == (request.state is not State.FINISHED)

    def teardown(self) -> None:
        """Every request ends, and within a bounded number of iterations."""
        if self.plan is not None:
            self.scheduler.complete(self.plan)
        work = sum(request.prompt_tokens + request.max_tokens for request in self.requests)
        for _ in range(work * (len(self.requests) + 1) + 1):
            if not self.scheduler.running and not self.scheduler.waiting:
                break
            self.scheduler.complete(self.scheduler.plan())
        assert all(request.state is State.FINISHED for request in self.requests)
        assert (self.scheduler.pool.free, self.scheduler.kv.host.free) == (BLOCKS, SWAP_BLOCKS)


SchedulerMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
test_scheduler_machine = SchedulerMachine.TestCase
