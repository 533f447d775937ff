"""Plans made while an iteration runs: whatever comes meanwhile, each request computes its own tokens on its own KV.

The machine keeps what each KV block would hold, as a device does that runs iterations in the order of their launches.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import AdaptiveChunk, Growth, Policies, PrefillCap, Protection, TokenCounters, Victim
from leeway_engine.scheduling.block_keys import KeySpace
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.move import Way
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import FinishReason, Request, State
from leeway_engine.scheduling.scheduler import Scheduler
from plan_limits import check_limits

BLOCKS, BLOCK_SIZE, SWAP_BLOCKS = 12, 4, 6
CAPACITY = BLOCKS * BLOCK_SIZE
CEILINGS = Ceilings(token_budget=24, chunk_size=24, running_sequences=5)
POLICIES = st.builds(
    Policies,
    ranking=st.just(TokenCounters()),
    adaptive_chunk=st.none() | st.just(AdaptiveChunk(itl_s=0.008, floor_tokens=2)),
    iteration_s=st.none() | st.just(0.006),
    prefill_cap=st.none() | st.just(PrefillCap(prefills=2, chunk_tokens=4)),
    protection=st.none() | st.just(Protection(decode_cap=2, boost_iterations=5, overdue_iterations=15)),
    growth=st.builds(Growth, reserve=st.sampled_from(("none", "expected", "all"))),
    victim=st.none() | st.just(Victim()),
)

Content = tuple[int, ...] | None


class AheadMachine(RuleBasedStateMachine):
    """Drives the scheduler as the engine does on a device that works by itself."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.knobs = PodKnobs(generation=1, token_budget=10, chunk_size=5, running_sequences=4)
        self.scheduler = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), self.knobs, CEILINGS, SWAP_BLOCKS)
        self.prompts: dict[Request, int] = {}
        self.next: Plan | None = None
        self.running: Plan | None = None
        self.drawing: list[Request] = []
        self.device: list[Content] = [None] * CAPACITY
        self.host: list[Content] = [None] * (SWAP_BLOCKS * BLOCK_SIZE)
        self.written: list[int] = []
        """Where the iteration that runs writes."""

    @rule(target=names, prompt=st.integers(1, 20), output=st.integers(1, 20))
    def arrive(self, prompt: int, output: int) -> str:
        number = len(self.prompts)
        keys: list[bytes] = []
        KeySpace(BLOCK_SIZE, model="m").extend(keys, [*range(prompt), *[1000 + number] * output])
        self.prompts[self.scheduler.add(f"r{number}", prompt, output, tenant="ab"[number % 2], keys=keys)] = number
        return f"r{number}"

    @rule(name=consumes(names))
    def cancel(self, name: str) -> None:
        self.scheduler.cancel(name)

    @rule(policies=POLICIES, budget=st.integers(5, 24), chunk=st.integers(1, 24))
    def push_knobs(self, policies: Policies, budget: int, chunk: int) -> None:
        update = {"policies": policies, "token_budget": budget, "chunk_size": chunk}
        self.knobs = self.knobs.model_copy(update={**update, "generation": self.knobs.generation + 1})
        assert self.scheduler.accept(self.knobs).refusal is None

    @precondition(lambda self: self.next is None)
    @rule()
    def plan(self) -> None:
        if self.scheduler.running or self.scheduler.waiting:
            self.next = self.scheduler.plan()
            check_limits(self.scheduler, self.next)
            assert self.next.knobs == self.knobs, "a plan has the knobs accepted before it is made"

    @precondition(lambda self: self.next is not None and self.running is None)
    @rule()
    def launch(self) -> None:
        plan, self.next = self.next, None
        assert plan is not None
        planned = len(plan.prefills)
        self.scheduler.amend(plan)
        if len(plan.prefills) > planned:
            check_limits(self.scheduler, plan)
        work = [(request, 1) for request in plan.decodes] + [*plan.prefills]
        assert all(request.state is not State.FINISHED for request, _ in work), "who has ended is not launched again"
        assert len({request for request, _ in work}) == len(work)
        assert plan.tokens == sum(tokens for _, tokens in work) <= plan.knobs.token_budget
        self._compute(plan, work)
        self.drawing = [request for request, tokens in work if request.computed + tokens == request.known]
        self.scheduler.book(plan)
        self.scheduler.observe(plan, 0.002 + 0.0005 * plan.tokens)
        self.running = plan

    @precondition(lambda self: self.running is not None)
    @rule(data=st.data())
    def collect(self, data: st.DataObject) -> None:
        drawn = [request for request in self.drawing if request.finish_reason is not FinishReason.CANCEL]
        stopped = data.draw(st.lists(st.sampled_from(drawn), unique=True, max_size=2)) if drawn else []
        self.scheduler.end_stopped(stopped)
        assert all(request.finish_reason is FinishReason.STOP for request in stopped)
        self.running = None

    @precondition(lambda self: self.next is not None and self.running is None)
    @rule()
    def fail_at_launch(self) -> None:
        plan, self.next = self.next, None
        assert plan is not None
        self.scheduler.amend(plan)
        self.scheduler.fail(plan.touched)
        self._check_failed(plan)

    @precondition(lambda self: self.running is not None)
    @rule()
    def fail_in_flight(self) -> None:
        plan, self.running = self.running, None
        assert plan is not None
        for slot in self.written:
            self.device[slot] = None
        self.scheduler.fail(self._alive(plan.touched), self.next)
        self._check_failed(plan)

    @rule(iterations=st.integers(1, 10))
    def iterate(self, iterations: int) -> None:
        for _ in range(iterations):
            if self.running is not None:
                self.scheduler.end_stopped(())
                self.running = None
            if self.next is None:
                self.plan()
            if self.next is not None:
                self.launch()
                self.plan()

    @invariant()
    def no_block_is_lost(self) -> None:
        held = {block for request in self.scheduler.running.values() for block in request.blocks}
        assert self.scheduler.pool.free + len(held) == BLOCKS
        swapped = [block for request in self.scheduler.waiting.values() for block in request.swapped]
        assert self.scheduler.kv.host.free + len(swapped) == SWAP_BLOCKS

    def teardown(self) -> None:
        """All end, and leave nothing behind."""
        for _ in range(40 * (len(self.prompts) + 1) ** 2):
            self.iterate(1)
            if not self.scheduler.running and not self.scheduler.waiting:
                break
        assert all(request.state is State.FINISHED for request in self.prompts)
        assert (self.scheduler.pool.free, self.scheduler.kv.promised) == (BLOCKS, 0)
        assert self.scheduler.kv.host.free == SWAP_BLOCKS

    def _compute(self, plan: Plan, work: list[tuple[Request, int]]) -> None:
        memories = {
            Way.COPY: (self.device, self.device),
            Way.OUT: (self.device, self.host),
            Way.IN: (self.host, self.device),
        }
        self.written = []
        for way, source, target in plan.moves:
            read, written = memories[way]
            for offset in range(BLOCK_SIZE):
                written[target * BLOCK_SIZE + offset] = read[source * BLOCK_SIZE + offset]
        for request, tokens in work:
            for position in range(request.computed, request.computed + tokens):
                self.written.append(self._slot(request, position))
                self.device[self.written[-1]] = self._content(request, position)
        for request, tokens in work:
            for position in range(request.computed + tokens):
                assert self.device[self._slot(request, position)] == self._content(request, position)

    def _check_failed(self, plan: Plan) -> None:
        assert all(request.state is State.FINISHED and not request.blocks for request in self._alive(plan.touched))

    def _alive(self, requests: list[Request]) -> list[Request]:
        return [request for request in requests if request.finish_reason is not FinishReason.CANCEL]

    def _slot(self, request: Request, position: int) -> int:
        block, offset = divmod(position, BLOCK_SIZE)
        return request.blocks[block] * BLOCK_SIZE + offset

    def _content(self, request: Request, position: int) -> Content:
        """The keys and values of a token hang on all tokens before it, of which the prompts' are alike."""
        if position < request.prompt_tokens:
            return (position,)
        return (position, request.prompt_tokens, self.prompts[request])


TestAheadMachine = AheadMachine.TestCase
TestAheadMachine.settings = settings(max_examples=40, stateful_step_count=40)


def test_an_arrival_and_a_freed_place_are_used_by_the_plan_made_already() -> None:
    knobs = PodKnobs(generation=1, token_budget=10, chunk_size=10, running_sequences=2)
    scheduler = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), knobs, CEILINGS)
    stopping, going_on, waiting = (scheduler.add(name, 3, 9) for name in "abc")
    scheduler.book(scheduler.plan())
    ahead = scheduler.plan()
    assert ahead.decodes == [stopping, going_on]
    scheduler.end_stopped([stopping])
    scheduler.amend(ahead)
    assert (ahead.decodes, [chunk.request for chunk in ahead.prefills]) == ([going_on], [waiting])
    assert (ahead.tokens, ahead.load.context_tokens, stopping.generated) == (4, 3, 1)


def test_a_prefill_that_found_no_room_goes_on_where_one_has_come() -> None:
    knobs = PodKnobs(generation=1, token_budget=6, chunk_size=6, running_sequences=3)
    scheduler = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), knobs, CEILINGS)
    first, second = scheduler.add("a", 11, 9), scheduler.add("b", 9, 9)
    scheduler.book(scheduler.plan())
    scheduler.book(scheduler.plan())
    assert (first.state, second.computed) == (State.DECODING, 1)
    ahead = scheduler.plan()
    assert [tuple(chunk) for chunk in ahead.prefills] == [(second, 5)]
    scheduler.cancel("a")
    scheduler.amend(ahead)
    assert (ahead.decodes, [tuple(chunk) for chunk in ahead.prefills]) == ([], [(second, 5)]), "a chunk does not grow"
    third = scheduler.add("c", 4, 1)
    scheduler.amend(ahead)
    assert [tuple(chunk) for chunk in ahead.prefills] == [(second, 5), (third, 1)]


@pytest.mark.parametrize(
    ("reason", "max_tokens", "ends"),
    [(FinishReason.LENGTH, 1, FinishReason.STOP), (FinishReason.CANCEL, 9, FinishReason.CANCEL)],
)
def test_a_stop_token_counts_for_more_than_the_length_and_less_than_a_cancel(
    reason: FinishReason, max_tokens: int, ends: FinishReason
) -> None:
    knobs = PodKnobs(generation=1, token_budget=6, chunk_size=6, running_sequences=3)
    scheduler = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), knobs, CEILINGS)
    request = scheduler.add("a", 3, max_tokens)
    scheduler.book(scheduler.plan())
    if reason is FinishReason.CANCEL:
        scheduler.cancel("a")
    assert request.finish_reason is reason
    scheduler.end_stopped([request])
    assert request.finish_reason is ends
    assert scheduler.pool.free == BLOCKS


def test_who_is_admitted_on_the_kv_of_an_iteration_that_fails_waits_again_and_computes_all() -> None:
    knobs = PodKnobs(generation=1, token_budget=10, chunk_size=10, running_sequences=3)
    scheduler = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), knobs, CEILINGS)
    keys: list[bytes] = []
    KeySpace(BLOCK_SIZE, model="m").extend(keys, range(8))
    first = scheduler.add("a", 9, 5, keys=[*keys])
    scheduler.book(scheduler.plan())
    second = scheduler.add("b", 9, 5, keys=[*keys])
    ahead = scheduler.plan()
    assert (second.state, second.computed) == (State.PREFILLING, 8)
    scheduler.fail([first], ahead)
    assert (first.finish_reason, scheduler.pool.free, scheduler.pool.cached) == (FinishReason.ERROR, BLOCKS, 0)
    assert (second.state, second.computed, second.admissions) == (State.PREEMPTED, 0, 0)
    scheduler.amend(ahead)
    assert (ahead.decodes, [tuple(chunk) for chunk in ahead.prefills]) == ([], [(second, 9)])
    assert (second.cached, scheduler.kv.hit_tokens, scheduler.kv.queried_tokens) == (0, 0, 18)
