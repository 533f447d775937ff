"""After any storm of arrivals, cancels, knob pushes, preemptions and swaps the scheduler keeps its promises."""

from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
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
from leeway_engine.scheduling.block_keys import KeySpace
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import LEGAL_TRANSITIONS, FinishReason, Request, RequestRejected, State
from leeway_engine.scheduling.scheduler import Scheduler
from plan_limits import check_limits

BLOCKS, BLOCK_SIZE, MOST_RUNNING, SWAP_BLOCKS = 12, 4, 5, 6
CEILINGS = Ceilings(token_budget=32, chunk_size=32, running_sequences=MOST_RUNNING)
POLICIES = st.builds(
    Policies,
    ranking=st.sampled_from(
        (
            FirstCome(),
            ShortestPrompt(ageing_tokens=0.5),
            EffectivePriority(class_points={"gold": 5.0}, urgency_horizon_s=20.0),
            SkipJoin(levels=3, first_quantum_tokens=4, promotion_iterations=20),
            TokenCounters(),
        )
    ),
    tenancy=st.sampled_from((Tenancy(), Tenancy(residency_weight=0.5, tenant_shares={"a": 3.0}))),
    adaptive_chunk=st.none() | st.just(AdaptiveChunk(itl_s=0.008, floor_tokens=2)),
    iteration_s=st.none() | st.just(0.006),
    prefill_cap=st.none() | st.just(PrefillCap(prefills=2, chunk_tokens=4)),
    protection=st.none() | st.just(Protection(decode_cap=2, boost_iterations=5, overdue_iterations=15)),
    growth=st.builds(Growth, reserve=st.sampled_from(("none", "expected", "all"))),
    slack=st.none() | st.builds(Slack, unreachable=st.sampled_from(("serve", "downgrade", "reject"))),
    admission=st.none() | st.just(AdmissionLimits(waiting_requests=6, tenant_requests=5, queue_delay_s=1.0)),
    victim=st.none() | st.just(Victim()),
)


def keys_of(number: int, prompt: int, output: int) -> list[bytes]:
    """Keys of a request's blocks: all prompts begin alike, and answers go on differently."""
    keys: list[bytes] = []
    KeySpace(BLOCK_SIZE, model="m").extend(keys, [*range(prompt), *[1000 + number] * output])
    return keys


def check_blocks(scheduler: Scheduler) -> None:
    """Every block is free or held, here and on the host, and those of whoever waits for a tool can be found."""
    here = [*scheduler.running.values(), *scheduler.tool_waits]
    held = {block for request in here for block in request.blocks}
    assert scheduler.pool.free + len(held) == BLOCKS
    assert all(len(set(request.blocks)) == len(request.blocks) for request in scheduler.running.values())
    swapped = [block for request in scheduler.waiting.values() for block in request.swapped]
    assert len(set(swapped)) == len(swapped)
    assert scheduler.kv.host.free + len(swapped) == SWAP_BLOCKS
    for request in scheduler.tool_waits:
        assert request.state is State.TOOL_WAIT
        assert request.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        assert request.blocks
        assert scheduler.pool.find(request.keys[: len(request.blocks)]) == request.blocks


def go_on(requests: list[Request], number: int, tokens: int) -> tuple[int, list[bytes]]:
    """The prompt of a request that goes on from an earlier one with so many tokens more, and its keys."""
    before = requests[number % len(requests)]
    prompt = before.known + tokens
    keys = before.keys[: before.known // BLOCK_SIZE]
    of_its_own = [f"{len(requests)} {place}".encode() for place in range(prompt // BLOCK_SIZE - len(keys))]
    return prompt, keys + of_its_own


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
        self.now_s = 0.0

    @rule(
        target=names,
        prompt=st.integers(1, 30),
        output=st.integers(1, 30),
        tool_wait_s=st.sampled_from((0.0, 5.0, 50.0)),
    )
    def arrive(self, prompt: int, output: int, tool_wait_s: float) -> str:
        name = f"r{len(self.requests)}"
        if prompt + output - 1 > BLOCKS * BLOCK_SIZE:
            with pytest.raises(RequestRejected):
                self.scheduler.add(name, prompt, output)
        else:
            keys = keys_of(len(self.requests), prompt, output)
            self.requests.append(
                self.scheduler.add(name, prompt, output, arrival_s=self.now_s, tool_wait_s=tool_wait_s, keys=keys)
            )
        return name

    @precondition(lambda self: self.requests)
    @rule(target=names, number=st.integers(0, 99), tokens=st.integers(1, 9), tool_wait_s=st.sampled_from((0.0, 20.0)))
    def come_back_from_a_tool(self, number: int, tokens: int, tool_wait_s: float) -> str:
        name = f"r{len(self.requests)}"
        prompt, keys = go_on(self.requests, number, tokens)
        if prompt + 2 - 1 <= BLOCKS * BLOCK_SIZE:
            before = next(
                (r for r in self.scheduler.tool_waits if r is self.requests[number % len(self.requests)]), None
            )
            request = self.scheduler.add(name, prompt, 2, arrival_s=self.now_s, tool_wait_s=tool_wait_s, keys=keys)
            self.requests.append(request)
            assert before is None or len(self.scheduler.pool.find(keys)) >= len(before.blocks)
        return name

    @rule(name=names)
    def stop(self, name: str) -> None:
        was = self.scheduler.running.get(name)
        request = self.scheduler.stop(name)
        if request is not None:
            assert request.finish_reason is FinishReason.STOP
            assert request is was or request.state is State.FINISHED
        assert self.scheduler.stop(name) is None

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

    @rule(seconds=st.integers(1, 30))
    def time_passes(self, seconds: int) -> None:
        self.now_s += seconds
        before = list(self.scheduler.tool_waits)
        self.scheduler.end_tool_waits(self.now_s)
        assert all(request.blocks == [] for request in before if request.state is State.FINISHED)
        assert (self.scheduler.tool_waits.next_end_s or self.now_s + 1) > self.now_s

    @rule()
    def make_plan(self) -> None:
        if self.plan is not None:
            return
        held = len(self.scheduler.running)
        decoding = {r for r in self.scheduler.running.values() if r.state is State.DECODING}
        plan = self.plan = self.scheduler.plan(self.now_s)
        assert plan.knobs == self.scheduler.enforced == self.pushed
        assert plan.tokens <= plan.knobs.token_budget
        assert len(self.scheduler.running) <= max(held, plan.knobs.running_sequences)
        assert all(0 < chunk.tokens <= plan.knobs.chunk_size for chunk in plan.prefills)
        assert not plan.preempted or not len(self.scheduler.tool_waits), "what is kept goes before what runs"
        for victim in plan.preempted:
            # One that needs less now, as it finds its prefix with another, may come back at once.
            kept = [request for request in self.scheduler.running.values() if request not in plan.admitted]
            assert all(request.order < victim.order for request in kept)
        admitted = [request.order for request in plan.admitted]
        assert admitted == sorted(admitted)
        assert all(order < request.order for order in admitted for request in self.scheduler.waiting.values())
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
        check_blocks(self.scheduler)

    @invariant()
    def each_request_is_where_its_state_says(self) -> None:
        for request in self.requests:
            running = self.scheduler.running.get(request.request_id) is request
            waiting = self.scheduler.waiting.get(request.request_id) is request
            assert running == (request.state in (State.PREFILLING, State.DECODING))
            assert waiting == (request.state in (State.WAITING, State.PREEMPTED))
            kept = request in list(self.scheduler.tool_waits)
            assert kept == (request.state is State.TOOL_WAIT)
            assert running or kept or not request.blocks
            assert request.state is not State.PREEMPTED or request.swapped or request.computed == 0
            assert (request.finish_reason is None) == (request.state not in (State.FINISHED, State.TOOL_WAIT))

    def teardown(self) -> None:
        """Every request ends, and within a bounded number of iterations."""
        if self.plan is not None:
            self.scheduler.complete(self.plan)
        assert self.scheduler.waiting_tokens == sum(request.to_compute for request in self.scheduler.waiting.values())
        work = sum(request.prompt_tokens + request.max_tokens for request in self.requests)
        for _ in range(work * (len(self.requests) + 1) + 1):
            if not self.scheduler.running and not self.scheduler.waiting:
                break
            self.scheduler.complete(self.scheduler.plan(self.now_s))
        self.scheduler.end_tool_waits(self.now_s + 1000)
        assert all(request.state is State.FINISHED for request in self.requests)
        assert (self.scheduler.pool.free, self.scheduler.kv.promised) == (BLOCKS, 0)
        assert self.scheduler.kv.host.free == SWAP_BLOCKS


class PolicyMachine(RuleBasedStateMachine):
    """Drives the scheduler while all policies are switched, clocks run and tools are used."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.knobs = PodKnobs(generation=1, token_budget=8, chunk_size=5, running_sequences=4)
        self.scheduler = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), self.knobs, CEILINGS, SWAP_BLOCKS)
        self.requests: list[Request] = []
        self.now_s = 0.0

    @rule(
        target=names,
        prompt=st.integers(1, 20),
        output=st.integers(1, 20),
        tenant=st.sampled_from("abc"),
        slo_class=st.sampled_from(("", "gold")),
        budget_s=st.none() | st.floats(0.0, 30.0),
        tool_wait_s=st.sampled_from((0.0, 0.1, 10.0)),
    )
    def arrive(
        self, prompt: int, output: int, tenant: str, slo_class: str, budget_s: float | None, tool_wait_s: float
    ) -> str:
        name = f"r{len(self.requests)}"
        deadline_s = None if budget_s is None else self.now_s + budget_s
        try:
            request = self.scheduler.add(
                name,
                prompt,
                output,
                arrival_s=self.now_s,
                tenant=tenant,
                slo_class=slo_class,
                deadline_s=deadline_s,
                tool_wait_s=tool_wait_s,
                keys=keys_of(len(self.requests), prompt, output),
            )
        except RequestRejected:
            assert self.scheduler.enforced.policies.admission is not None
        else:
            self.requests.append(request)
        return name

    @rule(policies=POLICIES, budget=st.integers(5, 24), chunk=st.integers(1, 24), running=st.integers(1, MOST_RUNNING))
    def switch(self, policies: Policies, budget: int, chunk: int, running: int) -> None:
        update = {"token_budget": budget, "chunk_size": chunk, "running_sequences": running, "policies": policies}
        self.knobs = self.knobs.model_copy(update={**update, "generation": self.knobs.generation + 1})
        assert self.scheduler.accept(self.knobs).refusal is None

    @rule(name=consumes(names))
    def cancel(self, name: str) -> None:
        self.scheduler.cancel(name)

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 99), tokens=st.integers(1, 9))
    def come_back_from_a_tool(self, number: int, tokens: int) -> None:
        prompt, keys = go_on(self.requests, number, tokens)
        try:
            name = f"r{len(self.requests)}"
            request = self.scheduler.add(name, prompt, 3, arrival_s=self.now_s, tool_wait_s=1.0, keys=keys)
        except RequestRejected:
            return
        self.requests.append(request)

    @rule(iterations=st.integers(1, 20))
    def iterate(self, iterations: int) -> None:
        for _ in range(iterations):
            held = len(self.scheduler.running)
            plan = self.scheduler.plan(self.now_s)
            check_limits(self.scheduler, plan)
            assert len(self.scheduler.running) <= max(held, plan.knobs.running_sequences)
            assert plan.tokens or not self.scheduler.running
            assert self.scheduler.running or not self.scheduler.waiting
            for request, tokens in [(r, 1) for r in plan.decodes] + list(plan.prefills):
                assert request.computed + tokens <= len(request.blocks) * BLOCK_SIZE
            policies = plan.knobs.policies
            by_level = isinstance(policies.ranking, SkipJoin)
            if policies.victim is None and not by_level and plan.preempted and self.scheduler.running:
                earliest = min(request.order for request in self.scheduler.running.values())
                assert all(victim.order > earliest or not self.scheduler.running for victim in plan.preempted)
            self.scheduler.complete(plan)
            seconds = 0.002 + 0.0005 * plan.tokens
            self.scheduler.observe(plan, seconds)
            self.now_s += seconds

    @invariant()
    def no_block_is_lost(self) -> None:
        check_blocks(self.scheduler)

    @invariant()
    def no_request_is_lost(self) -> None:
        here = [*self.scheduler.running.values(), *self.scheduler.waiting.values(), *self.scheduler.tool_waits]
        assert {id(r) for r in here} == {id(r) for r in self.requests if r.state is not State.FINISHED}
        assert self.scheduler.waiting_tokens == sum(request.to_compute for request in self.scheduler.waiting.values())

    @invariant()
    def tenants_are_counted(self) -> None:
        for account in self.scheduler.tenants.accounts.values():
            waiting = [r for r in self.scheduler.waiting.values() if r.account is account]
            running = [r for r in self.scheduler.running.values() if r.account is account]
            assert (account.queued, account.running) == (len(waiting), len(running))
            assert account.waiting_tokens == sum(request.to_compute for request in waiting)

    def teardown(self) -> None:
        """Every request ends, whatever is switched on last."""
        work = sum(request.prompt_tokens + request.max_tokens for request in self.requests)
        for _ in range(work * (len(self.requests) + 1) + 1):
            if not self.scheduler.running and not self.scheduler.waiting:
                break
            self.iterate(1)
        self.scheduler.end_tool_waits(self.now_s + 1000)
        assert all(request.state is State.FINISHED for request in self.requests)
        assert (self.scheduler.pool.free, self.scheduler.kv.promised) == (BLOCKS, 0)
        assert self.scheduler.kv.host.free == SWAP_BLOCKS


SchedulerMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50)
test_scheduler_machine = SchedulerMachine.TestCase
PolicyMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
test_policy_machine = PolicyMachine.TestCase


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_a_request_changes_state_only_where_that_is_legal(before: State, after: State) -> None:
    request = Request("a", 1, 1, order=1, state=before)
    if (before, after) in LEGAL_TRANSITIONS:
        request.move_to(after)
        assert request.state is after
    else:
        with pytest.raises(AssertionError, match=f"cannot go from {before.value} to {after.value}"):
            request.move_to(after)
        assert request.state is before


def test_a_request_ends_once_and_never_goes_on() -> None:
    assert not [after for before, after in LEGAL_TRANSITIONS if before is State.FINISHED]
    assert {before for before, after in LEGAL_TRANSITIONS if after is State.FINISHED} == set(State) - {State.FINISHED}
