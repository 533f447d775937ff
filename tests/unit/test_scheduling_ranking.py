"""Who goes first under each ranking, and what each promises."""

from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import (
    EffectivePriority,
    FirstCome,
    Growth,
    Policies,
    ShortestPrompt,
    SkipJoin,
    Tenancy,
    TokenCounters,
)
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.outlook import Outlook
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.predictor import Predictor
from leeway_engine.scheduling.ranking.effective_priority import EffectivePriorityRanking
from leeway_engine.scheduling.request import FinishReason, Request, State
from leeway_engine.scheduling.scheduler import Scheduler
from pydantic import ValidationError
from two_clients import TWO_CLIENT_BOUND, two_client_gaps

BLOCK_SIZE = 4
FAIR = Policies(ranking=TokenCounters(), growth=Growth(reserve="all"))


def scheduler(policies: Policies, blocks: int = 64, running: int = 1, budget: int = 16, chunk: int = 16) -> Scheduler:
    knobs = PodKnobs(generation=1, token_budget=budget, chunk_size=chunk, running_sequences=running, policies=policies)
    ceilings = Ceilings(token_budget=4096, chunk_size=4096, running_sequences=256)
    return Scheduler(BlockPool(blocks, BLOCK_SIZE), knobs, ceilings)


def run_one(engine: Scheduler, now_s: float = 0.0) -> Plan:
    plan = engine.plan(now_s)
    engine.complete(plan)
    return plan


def order_of_admission(engine: Scheduler, now_s: float = 0.0) -> list[str]:
    order: list[str] = []
    while engine.running or engine.waiting:
        order += [request.request_id for request in run_one(engine, now_s).admitted]
    return order


def test_shortest_prompts_go_first_and_equal_ones_by_arrival() -> None:
    engine = scheduler(Policies(ranking=ShortestPrompt()))
    for name, prompt in (("long", 40), ("short", 3), ("middle", 9), ("short too", 3)):
        engine.add(name, prompt, 1)
    assert order_of_admission(engine) == ["short", "short too", "middle", "long"]


@pytest.mark.parametrize("ranking", [ShortestPrompt(), EffectivePriority()], ids=lambda ranking: ranking.kind)
def test_what_of_a_prompt_is_in_kv_does_not_make_it_long(ranking: ShortestPrompt | EffectivePriority) -> None:
    engine = scheduler(Policies(ranking=ranking))
    keys = [bytes([number]) for number in range(20)]
    engine.pool.publish(taken := engine.pool.take(10), keys, range(10))
    engine.pool.give_back(taken)
    size = engine.pool.block_size
    engine.add("short", 2 * size, 1)
    engine.add("long and found", 10 * size + 1, 1, keys=keys[:10])
    engine.add("long", 10 * size + 1, 1, keys=keys[10:])
    assert order_of_admission(engine) == ["long and found", "short", "long"]


@given(ageing=st.integers(1, 20), prompt=st.integers(10, 200))
@settings(max_examples=30)
def test_an_endless_flow_of_short_prompts_holds_a_long_one_up_only_until_its_age_outweighs(
    ageing: int, prompt: int
) -> None:
    engine = scheduler(Policies(ranking=ShortestPrompt(ageing_tokens=ageing)))
    long = engine.add("long", prompt, 1)
    for iteration in range(prompt // ageing + 2):
        engine.add(f"short {iteration}", 1, 1)
        if run_one(engine).admitted == [long]:
            assert iteration >= (prompt - 1) // ageing
            return
    pytest.fail("the long prompt still waits")


def test_priority_is_class_and_urgency_less_cost() -> None:
    ranking = EffectivePriority(
        class_points={"gold": 50.0}, urgency_points=100.0, urgency_horizon_s=4.0, cost_points=0.1
    )
    engine = scheduler(Policies(ranking=ranking))
    engine.add("plain and long", 40, 1)
    engine.add("plain", 4, 1)
    engine.add("important", 4, 1, priority=20)
    engine.add("gold", 4, 1, slo_class="gold")
    engine.add("urgent", 4, 1, deadline_s=1.0)
    engine.add("due later", 4, 1, deadline_s=100.0)
    expected = ["urgent", "gold", "important", "plain", "due later", "plain and long"]
    assert order_of_admission(engine) == expected


def test_a_waiting_request_becomes_urgent_as_time_passes_though_nothing_else_happens() -> None:
    engine = scheduler(Policies(ranking=EffectivePriority(urgency_horizon_s=4.0)))
    engine.add("runs", 4, 30)
    run_one(engine)
    engine.add("first", 4, 1, arrival_s=0.0)
    urgent = engine.add("due at 20", 4, 1, arrival_s=0.0, deadline_s=20.0)
    for now_s in range(16):
        engine.complete(engine.plan(float(now_s)))
    engine.cancel("runs")
    assert run_one(engine, 17.0).admitted == [urgent]


def test_age_outweighs_class_and_urgency_in_the_end() -> None:
    engine = scheduler(Policies(ranking=EffectivePriority(class_points={"gold": 10.0}, age_points=0.5)))
    plain = engine.add("plain", 4, 1)
    for iteration in range(30):
        engine.add(f"gold {iteration}", 4, 1, slo_class="gold")
        if run_one(engine).admitted == [plain]:
            assert iteration >= 20
            return
    pytest.fail("the plain request still waits")


POINTS = st.floats(-50, 50)
FACTORS = st.fixed_dictionaries(
    {"class": POINTS, "priority": st.integers(-100, 100), "slack": st.floats(0, 30), "age": st.integers(0, 50)}
)


def points_of(ranking: EffectivePriority, request: Request) -> float:
    """Points of a request in an idle pod at time 0 and iteration 100."""
    outlook = Outlook(Predictor(), OutputLengths(), scheduler(Policies(ranking=ranking)).enforced)
    queue = EffectivePriorityRanking(ranking, outlook)
    queue.add(request, 100, 0.0)
    return -queue._queue.key(request)


@given(less=FACTORS, more=FACTORS, tokens=st.tuples(st.integers(1, 500), st.integers(0, 500)), due=st.booleans())
def test_priority_never_falls_with_class_urgency_or_age_nor_rises_with_cost(
    less: dict[str, float], more: dict[str, float], tokens: tuple[int, int], due: bool
) -> None:
    # Each factor of the one is at most that of the other, and its cost at least.
    pairs = {name: sorted((less[name], more[name])) for name in less}
    ranking = EffectivePriority(class_points={"0": pairs["class"][0], "1": pairs["class"][1]})

    def request(which: int, prompt: int) -> Request:
        return Request(
            str(which),
            prompt,
            1,
            order=1,
            arrival_iteration=100 - int(pairs["age"][which]),
            slo_class=str(which),
            priority=int(pairs["priority"][which]),
            deadline_s=pairs["slack"][1 - which] if due else None,
        )

    low, high = points_of(ranking, request(0, sum(tokens))), points_of(ranking, request(1, tokens[0]))
    assert low <= high + 1e-9


@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from(("", "gold")), st.integers(-5, 5), st.integers(1, 40), st.integers(1, 8), st.booleans()
        ),
        min_size=10,
        max_size=60,
    ),
    age_points=st.sampled_from((0.5, 1.0, 4.0)),
)
@settings(max_examples=50)
def test_nobody_is_passed_by_who_comes_after_its_age_outweighs_all_else(
    arrivals: list[tuple[str, int, int, int, bool]], age_points: float
) -> None:
    """Points differ by the classes', the priorities', the urgency's and the costs' spread at most."""
    ranking = EffectivePriority(class_points={"gold": 10.0}, urgency_points=7.0, cost_points=0.1, age_points=age_points)
    engine = scheduler(Policies(ranking=ranking))
    most = (10 + 10 + 7 + 0.1 * 48) / age_points
    pending = list(enumerate(arrivals))
    while pending or engine.waiting:
        for number, (slo_class, priority, prompt, output, due) in pending[:2]:
            deadline_s = engine.iterations + 4.0 if due else None
            engine.add(str(number), prompt, output, slo_class=slo_class, priority=priority, deadline_s=deadline_s)
        del pending[:2]
        admitted = run_one(engine, float(engine.iterations)).admitted
        for passed in engine.waiting.values():
            assert all(request.arrival_iteration - passed.arrival_iteration <= most for request in admitted)


def test_a_request_joins_the_level_whose_quantum_covers_its_prefill() -> None:
    engine = scheduler(Policies(ranking=SkipJoin(levels=4, first_quantum_tokens=8)))
    for name, prompt in (("level 3", 33), ("level 0", 8), ("level 2", 17), ("level 1", 9), ("lowest", 150)):
        engine.add(name, prompt, 1)
    assert order_of_admission(engine) == ["level 0", "level 1", "level 2", "level 3", "lowest"]


def test_a_request_sinks_a_level_for_each_quantum_it_was_served() -> None:
    engine = scheduler(Policies(ranking=SkipJoin(levels=3, first_quantum_tokens=8)), blocks=8, running=4)
    engine.add("earliest", 4, 24)
    for _ in range(12):
        run_one(engine)
    engine.add("served", 8, 8)
    while not run_one(engine).preempted:
        pass
    assert list(engine.waiting) == ["served"], "the earliest arrival stays, so that all end, however low its level"
    engine.add("low", 20, 1)
    engine.add("high", 2, 1)
    assert order_of_admission(engine) == ["high", "served", "low", "earliest"], "but it stands back for a higher level"


def test_a_low_level_rises_to_the_top_when_it_waited_too_long() -> None:
    engine = scheduler(Policies(ranking=SkipJoin(first_quantum_tokens=4, promotion_iterations=10)))
    long = engine.add("long", 16, 1)
    for iteration in range(1, 30):
        engine.add(f"short {iteration}", 4, 1)
        if run_one(engine).admitted == [long]:
            break
    # It rose in the tenth iteration, behind the short one that came before that.
    assert iteration == 11


class Bystander:
    """Counts the service of each tenant by the requests' own counts, as a tenant could."""

    def __init__(self, requests: Iterable[Request], tenancy: Tenancy) -> None:
        self.requests = list(requests)
        self.tenancy = tenancy

    def service(self, tenant: str) -> float:
        return sum(
            self.tenancy.input_weight * self._prompt(request) + self.tenancy.output_weight * request.generated
            for request in self.requests
            if request.account.tenant == tenant
        )

    def _prompt(self, request: Request) -> int:
        """Prompt tokens, those of a cancelled request as far as they were computed."""
        if request.finish_reason is FinishReason.CANCEL:
            return request.prompt_tokens - request.unreached
        return request.prompt_tokens * (request.admitted_iteration > 0)


REQUEST = st.tuples(st.sampled_from("fgh"), st.integers(1, 12), st.integers(1, 20))


@given(
    requests=st.lists(REQUEST, min_size=20, max_size=60),
    arrivals=st.lists(st.integers(0, 6), min_size=5, max_size=30),
    blocks=st.integers(8, 16),
    running=st.integers(1, 8),
    weights=st.sampled_from(((1.0, 2.0), (1.0, 1.0), (0.5, 4.0))),
    cancels=st.just([]) | st.lists(st.none() | st.integers(0, 99), min_size=5, max_size=30),
)
@settings(max_examples=60)
def test_between_two_backlogged_tenants_the_difference_in_service_is_bounded(
    requests: list[tuple[str, int, int]],
    arrivals: list[int],
    blocks: int,
    running: int,
    weights: tuple[float, float],
    cancels: list[int | None],
) -> None:
    tenancy = Tenancy(input_weight=weights[0], output_weight=weights[1])
    policies = FAIR.model_copy(update={"tenancy": tenancy})
    engine = scheduler(policies, blocks=blocks, running=running, budget=8, chunk=5)
    bystander = Bystander((), tenancy)
    longest = max(prompt for _, prompt, _ in requests)
    bound = 2 * max(weights[0] * longest, weights[1] * blocks * BLOCK_SIZE)
    least = dict.fromkeys(combinations("fgh", 2), 0.0)
    most = dict.fromkeys(combinations("fgh", 2), 0.0)
    since_backlogged = dict.fromkeys(combinations("fgh", 2), False)
    pending = list(enumerate(requests))
    counts, gone = iter(arrivals), iter(cancels)
    while pending or engine.waiting:
        for _ in range(min(next(counts, 6), len(pending))):
            number, (tenant, prompt, output) = pending.pop(0)
            bystander.requests.append(engine.add(str(number), prompt, output, tenant=tenant))
        assert not run_one(engine).preempted
        here = [*engine.running, *engine.waiting]
        if here and (number := next(gone, None)) is not None:
            engine.cancel(here[number % len(here)])
        for f, g in combinations("fgh", 2):
            backlogged = all(
                any(request.account.tenant == tenant for request in engine.waiting.values()) for tenant in (f, g)
            )
            gap = bystander.service(f) - bystander.service(g)
            if not backlogged:
                since_backlogged[f, g] = False
            elif not since_backlogged[f, g]:
                since_backlogged[f, g] = True
                least[f, g] = most[f, g] = gap
            else:
                # The difference over any interval within is at most that between two points of the gap.
                least[f, g], most[f, g] = min(least[f, g], gap), max(most[f, g], gap)
                assert most[f, g] - least[f, g] <= bound


def test_the_published_run_of_two_clients_stays_within_the_bound_and_first_come_does_not_even_out() -> None:
    fair, unfair = two_client_gaps(TokenCounters(), 150), two_client_gaps(FirstCome(), 150)
    assert max(fair) <= TWO_CLIENT_BOUND == 40_000
    half = len(unfair) // 2
    assert unfair[-1] > 1.8 * unfair[half], "first come, first served grows with time"
    assert unfair[-1] > TWO_CLIENT_BOUND


def test_a_tenant_that_comes_back_is_lifted_and_gets_no_burst() -> None:
    engine = scheduler(FAIR, running=1)
    for number in range(10):
        engine.add(f"busy {number}", 4, 4, tenant="busy")
    for _ in range(20):
        run_one(engine)
    for number in range(5):
        engine.add(f"back {number}", 4, 4, tenant="back")
    order = order_of_admission(engine)
    assert [name.split()[0] for name in order[:6]].count("back") == 3


def test_the_first_to_come_when_nobody_waits_is_lifted_to_the_last_who_left() -> None:
    engine = scheduler(FAIR, running=1)
    engine.add("a", 8, 8, tenant="busy")
    order_of_admission(engine)
    counter = engine.tenants.accounts["busy"].counter
    assert engine.add("b", 1, 1, tenant="new").account.counter >= counter - 2 * 8
    assert engine.tenants.accounts["new"].counter > 0


@pytest.mark.parametrize(("share", "expected"), [(1.0, 1.0), (3.0, 3.0)])
def test_service_follows_the_shares(share: float, expected: float) -> None:
    tenancy = Tenancy(tenant_shares={"paying": share})
    engine = scheduler(FAIR.model_copy(update={"tenancy": tenancy}), running=2)
    for number in range(300):
        for tenant in ("paying", "other"):
            engine.add(f"{tenant} {number}", 4, 4, tenant=tenant)
    requests = list(engine.waiting.values())
    for _ in range(300):
        run_one(engine)
    bystander = Bystander(requests, Tenancy())
    assert bystander.service("paying") / bystander.service("other") == pytest.approx(expected, rel=0.15)


def test_residency_makes_those_pay_who_hold_much_kv() -> None:
    tenancy = Tenancy(residency_weight=1.0)
    engine = scheduler(FAIR.model_copy(update={"tenancy": tenancy}), running=2, budget=64, chunk=64)
    engine.add("large", 60, 4, tenant="large")
    engine.add("small", 4, 4, tenant="small")
    order_of_admission(engine)
    large, small = (engine.tenants.accounts[tenant].counter for tenant in ("large", "small"))
    assert large - small > 56 + 3 * 56 * 0.9


def test_class_shares_weigh_products() -> None:
    engine = scheduler(FAIR.model_copy(update={"tenancy": Tenancy(class_shares={"premium": 2.0})}))
    engine.add("a", 8, 1, tenant="a", slo_class="premium")
    engine.add("b", 8, 1, tenant="b")
    order_of_admission(engine)
    counters = {name: account.counter for name, account in engine.tenants.accounts.items()}
    assert counters["b"] - counters["a"] >= 4


def test_outputs_weigh_at_least_as_much_as_inputs() -> None:
    with pytest.raises(ValidationError, match="the bound on unfairness would not hold"):
        Tenancy(input_weight=2.0, output_weight=1.0)


def test_a_cancelled_prompt_is_paid_for_as_far_as_it_was_computed() -> None:
    engine = scheduler(FAIR, blocks=300, running=4, budget=8, chunk=8)
    request = engine.add("a", 1000, 10, tenant="t")
    account = request.account
    run_one(engine)
    assert account.counter == 1000
    engine.cancel("a")
    assert account.counter == request.service == 8
    engine.add("b", 100, 10, tenant="t")
    engine.cancel("b")
    assert account.counter == 8, "in the queue it has cost nothing"


def test_what_was_charged_is_given_back_though_the_weights_have_changed_since() -> None:
    engine = scheduler(FAIR, blocks=300, budget=10, chunk=10)
    account = engine.add("a", 1000, 10, tenant="t").account
    run_one(engine)
    dear = FAIR.model_copy(update={"tenancy": Tenancy(input_weight=2.0, tenant_shares={"t": 0.5})})
    engine.accept(engine.accepted.model_copy(update={"generation": 2, "policies": dear}))
    run_one(engine)
    engine.cancel("a")
    assert account.counter == 20


def test_what_was_computed_before_a_preemption_stays_paid() -> None:
    engine = scheduler(Policies(), blocks=10, running=4, budget=8, chunk=4)
    engine.add("grows", 4, 37)
    victim = engine.add("victim", 32, 1, tenant="t")
    while not run_one(engine).preempted:
        pass
    computed = victim.prefilled
    assert victim.state is State.PREEMPTED
    assert 0 < computed < 32
    engine.cancel("victim")
    assert victim.account.counter == computed


def test_a_tenant_that_is_paid_back_has_its_turn_at_once() -> None:
    engine = scheduler(FAIR, blocks=300, running=1, budget=8, chunk=8)
    engine.add("f0", 500, 1, tenant="f")
    for name in ("f1", "g1", "f2", "g2"):
        engine.add(name, 4, 1, tenant=name[0])
    run_one(engine)
    assert engine.tenants.least_served() is engine.tenants.accounts["g"]
    engine.tenants.accounts["g"].counter += 20
    engine.cancel("f0")
    assert engine.tenants.least_served() is engine.tenants.accounts["f"]
    assert order_of_admission(engine)[0] == "f1"


def act(engine: Scheduler, number: int, step: str, tenant: str, amount: int) -> None:
    """Let a request come, end one of those that are here, or run an iteration; other steps do nothing."""
    here = [*engine.running, *engine.waiting]
    if step == "add":
        engine.add(str(number), amount, 1 + amount % 9, tenant=tenant)
    elif step == "cancel" and here:
        engine.cancel(here[amount % len(here)])
    elif step == "run":
        run_one(engine)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("add", "cancel", "run")), st.sampled_from("fghi"), st.integers(1, 40)), max_size=80
    )
)
@settings(max_examples=100)
def test_the_least_served_tenant_is_found_whatever_is_charged_and_paid_back(steps: list[tuple[str, str, int]]) -> None:
    engine = scheduler(FAIR, blocks=60, running=3, budget=8, chunk=5)
    tenants = engine.tenants
    for number, (step, tenant, amount) in enumerate(steps):
        act(engine, number, step, tenant, amount)
        waiting = [account for account in tenants.accounts.values() if account.queued]
        least = min((account.counter for account in waiting), default=None)
        found = tenants.least_served()
        assert (found and found.counter) == least
        assert all(account.counter >= 0 for account in tenants.accounts.values())


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(("add", "cancel", "read", "reweigh", "run", "run")),
            st.sampled_from("fg"),
            st.integers(1, 40),
        ),
        max_size=80,
    )
)
@settings(max_examples=100)
def test_a_counter_is_the_same_whether_it_was_read_before_or_not(steps: list[tuple[str, str, int]]) -> None:
    def policies(residency: int) -> Policies:
        # All weights are whole numbers, so that no order of sums is rounded otherwise.
        return Policies(tenancy=Tenancy(residency_weight=float(residency)))

    often, once = (scheduler(policies(1), blocks=60, running=4, budget=8, chunk=5) for _ in range(2))
    for number, (step, tenant, amount) in enumerate(steps):
        for engine in (often, once):
            act(engine, number, step, tenant, amount)
            if step == "reweigh":
                update = {"generation": number + 2, "policies": policies(amount % 3)}
                engine.accept(engine.accepted.model_copy(update=update))
            elif step == "read" and engine is often:
                assert all(account.counter >= 0 for account in engine.tenants.accounts.values())
    read = [{name: account.counter for name, account in engine.tenants.accounts.items()} for engine in (often, once)]
    assert read[0] == read[1]


def test_tenants_that_left_are_forgotten() -> None:
    engine = scheduler(FAIR, running=4)
    for number in range(2000):
        engine.add(str(number), 4, 1, tenant=f"tenant {number}")
        run_one(engine)
    assert len(engine.tenants.accounts) < 300


RANKINGS = (FirstCome(), ShortestPrompt(), EffectivePriority(), SkipJoin(), TokenCounters())


@given(
    requests=st.lists(
        st.tuples(st.sampled_from("fg"), st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=20
    ),
    switches=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(RANKINGS)), max_size=8),
)
@settings(max_examples=40)
def test_switching_the_ranking_at_any_time_loses_no_request(
    requests: list[tuple[str, int, int]],
    switches: list[tuple[int, FirstCome | ShortestPrompt | EffectivePriority | SkipJoin | TokenCounters]],
) -> None:
    engine = scheduler(Policies(), blocks=12, running=3)
    added = [engine.add(str(n), prompt, output, tenant=t) for n, (t, prompt, output) in enumerate(requests)]
    for iterations, ranking in switches:
        for _ in range(iterations):
            run_one(engine)
        update = {"generation": engine.accepted.generation + 1, "policies": Policies(ranking=ranking)}
        assert engine.accept(engine.accepted.model_copy(update=update)).refusal is None
    order_of_admission(engine)
    assert [request.generated for request in added] == [output for _, _, output in requests]
