"""What becomes of deadlines: boosted while reachable, best effort when doubtful, given up when out of reach."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_core.policies import (
    EffectivePriority,
    FirstCome,
    Policies,
    Ranking,
    ShortestPrompt,
    SkipJoin,
    Slack,
    Tenancy,
    TokenCounters,
)
from leeway_engine.scheduling.blocks import BlockPool
from leeway_engine.scheduling.lengths import OutputLengths
from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.outlook import Outlook, Reach
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.predictor import Predictor
from leeway_engine.scheduling.ranking.choice import ranking_of
from leeway_engine.scheduling.request import FinishReason, Request, State
from leeway_engine.scheduling.scheduler import Scheduler
from leeway_engine.scheduling.tenants import Tenants

ITERATION_S = 0.1


def scheduler(policies: Policies) -> Scheduler:
    """A pod whose every iteration takes 0.1 s, as its predictor knows, and that runs one request at a time."""
    knobs = PodKnobs(generation=1, token_budget=100, chunk_size=10, running_sequences=1, policies=policies)
    engine = Scheduler(BlockPool(1000, 16), knobs, Ceilings(token_budget=100, chunk_size=10, running_sequences=1))
    for number in range(12):
        engine.add(str(number), 10, 3)
    while engine.running or engine.waiting:
        run_one(engine)
    return engine


def run_one(engine: Scheduler, now_s: float = 0.0) -> Plan:
    plan = engine.plan(now_s)
    engine.observe(plan, ITERATION_S)
    engine.complete(plan)
    return plan


@pytest.mark.parametrize(
    ("left_s", "reach"),
    [(1.5, Reach.REACHABLE), (1.15, Reach.DOUBTFUL), (0.9, Reach.DOUBTFUL), (0.6, Reach.UNREACHABLE)],
)
def test_a_deadline_is_judged_by_the_predicted_time_and_its_doubt(left_s: float, reach: Reach) -> None:
    # Eight chunks and the two decodes that follow the first token: 1.0 s, 25 % more or less.
    outlook: Outlook = scheduler(Policies(slack=Slack(doubt_percent=25)))._outlook
    request = Request("a", 80, 3, order=1, deadline_s=100 + left_s)
    assert outlook.remaining_s(request) == pytest.approx(1.0, rel=0.1)
    assert outlook.reach(request, 100.0) is reach


def test_while_nothing_can_be_predicted_a_deadline_is_reachable_until_it_has_passed() -> None:
    policies = Policies(slack=Slack(unreachable="reject"))
    knobs = PodKnobs(generation=1, token_budget=100, chunk_size=10, running_sequences=1, policies=policies)
    engine = Scheduler(BlockPool(100, 16), knobs, Ceilings(token_budget=100, chunk_size=10, running_sequences=1))
    engine.add("runs", 10, 50)
    run_one(engine)
    late = engine.add("late", 10, 3, deadline_s=1.0)
    assert run_one(engine, 0.9).rejected == []
    assert run_one(engine, 1.1).rejected == [late]


def test_a_class_says_what_becomes_of_requests_that_are_too_late() -> None:
    slack = Slack(unreachable="serve", by_class={"strict": "reject", "soft": "downgrade"})
    ranking = EffectivePriority(class_points={"strict": 10.0, "soft": 10.0})
    engine = scheduler(Policies(slack=slack, ranking=ranking))
    engine.add("runs", 10, 100, arrival_s=10.0)
    run_one(engine, 10.0)
    strict, soft, other = (
        engine.add(name, 80, 3, arrival_s=10.0, slo_class=name, deadline_s=10.5) for name in ("strict", "soft", "other")
    )
    assert run_one(engine, 10.1).rejected == [strict]
    assert (strict.state, strict.finish_reason) == (State.FINISHED, FinishReason.REJECTED)
    assert (soft.state, soft.downgraded) == (State.WAITING, True)
    assert (other.state, other.downgraded) == (State.WAITING, False)


def test_a_request_is_rejected_as_soon_as_its_deadline_is_out_of_reach_and_not_before() -> None:
    engine = scheduler(Policies(slack=Slack(unreachable="reject", doubt_percent=0)))
    engine.add("runs", 10, 100, arrival_s=10.0)
    run_one(engine, 10.0)
    waits = engine.add("waits", 80, 3, arrival_s=10.0, deadline_s=13.0)
    now_s = 10.0
    while not run_one(engine, now_s).rejected:
        now_s += ITERATION_S
    assert waits.finish_reason is FinishReason.REJECTED
    assert now_s == pytest.approx(12.0, abs=1.5 * ITERATION_S)


def test_the_first_in_the_queue_is_given_up_when_growing_predictions_put_it_out_of_reach() -> None:
    engine = scheduler(Policies(slack=Slack(unreachable="reject", doubt_percent=0)))
    engine.add("runs", 10, 1000, arrival_s=10.0)
    run_one(engine, 10.0)
    late = engine.add("late", 80, 3, arrival_s=10.0, deadline_s=60.0)
    now_s = 10.0
    while not (plan := engine.plan(now_s)).rejected:
        engine.complete(plan)
        engine.observe(plan, 5 * ITERATION_S)
        now_s += 5 * ITERATION_S
    assert plan.rejected == [late]
    assert now_s < 58.4, "by the first predictions it was in reach until 59 s"


@pytest.mark.parametrize("known", ["at its arrival", "since", "too little"])
def test_a_deadline_counts_what_of_the_prompt_is_in_kv(known: str) -> None:
    engine = scheduler(Policies(slack=Slack(unreachable="reject", doubt_percent=0)))
    keys = [bytes([number]) for number in range(10)]

    if known == "at its arrival":
        engine.add("same begin", 161, 1, arrival_s=10.0, keys=list(keys))
        while engine.running or engine.waiting:
            run_one(engine, 10.0)
    # Of 165 tokens 17 chunks and 2 decodes, so 1.9 s; where 160 are found 0.3 s.
    step = engine.add("next step", 165, 3, arrival_s=10.0, deadline_s=11.0, keys=list(keys))
    if known != "at its arrival":
        engine.pool.publish(taken := engine.pool.take(10 if known == "since" else 4), keys, range(len(taken)))
    plan = run_one(engine, 10.0)
    assert (plan.rejected, plan.admitted) == (([step], []) if known == "too little" else ([], [step]))


def test_what_has_begun_is_never_given_up() -> None:
    engine = scheduler(Policies(slack=Slack(unreachable="reject")))
    begun = engine.add("begun", 80, 30, arrival_s=10.0, deadline_s=14.8)
    assert run_one(engine, 10.0).admitted == [begun]
    while engine.running:
        assert not run_one(engine, 20.0).rejected
    assert begun.finish_reason is FinishReason.LENGTH


def test_a_doubtful_deadline_gives_no_urgency_and_a_reachable_one_does() -> None:
    engine = scheduler(Policies(ranking=EffectivePriority(urgency_horizon_s=2.0), slack=Slack(unreachable="serve")))
    engine.add("plain", 80, 3, arrival_s=10.0)
    engine.add("doubtful", 80, 3, arrival_s=10.0, deadline_s=11.0)
    reachable = engine.add("reachable", 80, 3, arrival_s=10.0, deadline_s=11.4)
    assert run_one(engine, 10.0).admitted == [reachable]
    engine.cancel("reachable")
    assert [r.request_id for r in run_one(engine, 10.0).admitted] == ["plain"]


def test_a_downgraded_request_ranks_as_if_it_had_no_class() -> None:
    ranking = EffectivePriority(class_points={"gold": 50.0})
    engine = scheduler(Policies(ranking=ranking, slack=Slack(unreachable="downgrade")))
    engine.add("runs", 10, 100, arrival_s=10.0)
    run_one(engine, 10.0)
    plain = engine.add("plain", 10, 3, arrival_s=10.0)
    engine.add("gold, too late", 80, 3, arrival_s=10.0, slo_class="gold", deadline_s=10.1)
    gold = engine.add("gold", 10, 3, arrival_s=10.0, slo_class="gold")
    run_one(engine, 10.1)
    engine.cancel("runs")
    order = []
    while engine.waiting:
        order += run_one(engine, 10.2).admitted
    assert order[:2] == [gold, plain]


RANKINGS = (FirstCome(), ShortestPrompt(), EffectivePriority(age_points=0.5), SkipJoin(), TokenCounters())
SLACK = Slack(pressing_s=2.0, doubt_percent=25, unreachable="serve")


def outlook_of(policies: Policies) -> Outlook:
    """Predicts 0.1 s for every iteration, in chunks of ten tokens."""
    predictor = Predictor()
    for tokens in range(40):
        predictor.observe(Load(4, 100).with_chunk(1 + tokens, 0), ITERATION_S)
    knobs = PodKnobs(generation=1, token_budget=100, chunk_size=10, running_sequences=8, policies=policies)
    return Outlook(predictor, OutputLengths(), knobs)


WORST_FIRST = [Reach.UNREACHABLE, Reach.DOUBTFUL, Reach.REACHABLE]


@given(
    left_s=st.tuples(st.floats(0, 30), st.floats(0, 30)),
    prompt=st.tuples(st.integers(1, 500), st.integers(1, 500)),
    output=st.tuples(st.integers(1, 100), st.integers(1, 100)),
    doubt=st.integers(0, 99),
)
def test_a_verdict_never_worsens_with_more_time_or_less_work(
    left_s: tuple[float, float], prompt: tuple[int, int], output: tuple[int, int], doubt: int
) -> None:
    outlook = outlook_of(Policies(slack=Slack(doubt_percent=doubt)))
    worse = Request("worse", max(prompt), max(output), order=1, deadline_s=min(left_s))
    better = Request("better", min(prompt), min(output), order=2, deadline_s=max(left_s))
    assert WORST_FIRST.index(outlook.reach(worse, 0.0)) <= WORST_FIRST.index(outlook.reach(better, 0.0))


def place(outlook: Outlook, request: Request, now_s: float) -> int:
    """0 goes first and 2 last."""
    if request.deadline_s is None:
        return 1
    if outlook.reach(request, now_s) is not Reach.REACHABLE:
        return 2
    return 0 if request.deadline_s - now_s - outlook.remaining_s(request) <= SLACK.pressing_s else 1


@given(
    ranking=st.sampled_from(RANKINGS),
    asks=st.lists(
        st.tuples(st.integers(1, 80), st.integers(1, 20), st.none() | st.floats(0, 20), st.sampled_from("fgh")),
        min_size=1,
        max_size=20,
    ),
    later_s=st.floats(0, 12),
)
@settings(max_examples=100)
def test_pressing_deadlines_go_before_every_ranking_and_doubtful_ones_after(
    ranking: Ranking, asks: list[tuple[int, int, float | None, str]], later_s: float
) -> None:
    policies = Policies(ranking=ranking, slack=SLACK)
    outlook = outlook_of(policies)
    tenants = Tenants(Tenancy())
    requests = [
        Request(str(number), prompt, output, order=number, account=tenants.account(tenant), deadline_s=deadline_s)
        for number, (prompt, output, deadline_s, tenant) in enumerate(asks)
    ]
    for number, request in enumerate(requests):
        tenants.queued(request)
        request.account.counter += number % 3

    def order(chosen: list[Request], with_slack: bool) -> list[Request]:
        queue = ranking_of(policies if with_slack else Policies(ranking=ranking), outlook, tenants)
        for request in chosen:
            queue.add(request, 0, 0.0)
        found = []
        while (first := queue.first(0, later_s)) is not None:
            found.append(first)
            queue.discard(first)
            tenants.left_queue(first)
        for request in chosen:
            tenants.queued(request)
        return found

    placed = order(requests, with_slack=True)
    assert sorted(placed, key=requests.index) == requests
    places = [place(outlook, request, later_s) for request in placed]
    assert places == sorted(places)
    if not isinstance(ranking, TokenCounters):
        for which in range(3):
            alike = [request for request in requests if place(outlook, request, later_s) == which]
            assert [request for request in placed if request in alike] == order(alike, with_slack=False)


@given(
    ranking=st.sampled_from(RANKINGS),
    asks=st.lists(
        st.tuples(st.integers(1, 80), st.integers(1, 20), st.none() | st.floats(0, 8), st.sampled_from(("", "soft"))),
        min_size=1,
        max_size=25,
    ),
    slower=st.floats(1, 5),
)
@settings(max_examples=60)
def test_what_is_out_of_reach_is_never_admitted_though_predictions_grow(
    ranking: Ranking, asks: list[tuple[int, int, float | None, str]], slower: float
) -> None:
    policies = Policies(ranking=ranking, slack=Slack(unreachable="reject", by_class={"soft": "downgrade"}))
    engine = scheduler(policies)
    now_s = 0.0
    for number, (prompt, output, left_s, slo_class) in enumerate(asks):
        deadline_s = None if left_s is None else now_s + left_s
        engine.add(f"r{number}", prompt, output, arrival_s=now_s, slo_class=slo_class, deadline_s=deadline_s)
        now_s += ITERATION_S
    while engine.running or engine.waiting:
        plan = engine.plan(now_s)
        for request in plan.admitted:
            late = engine._outlook.reach(request, now_s) is Reach.UNREACHABLE
            assert not late or request.downgraded or request.admissions > 1
        seconds = ITERATION_S * (slower if now_s > 2 else 1)
        engine.observe(plan, seconds)
        engine.complete(plan)
        now_s += seconds
