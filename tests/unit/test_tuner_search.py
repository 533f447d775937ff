"""The loop on plants of pure arithmetic: where it ends up, and what it costs."""

import statistics

import pytest
from leeway_core.decision import Decision
from leeway_core.knobs import Knobs
from leeway_core.ranges import Range
from leeway_core.record import Record
from leeway_tuner.beginning import PATIENCE_TRIALS
from leeway_tuner.binding import Binding
from leeway_tuner.case import same
from leeway_tuner.evidence import RISK
from leeway_tuner.space import Space
from leeway_tuner.state import Outcome, State
from leeway_tuner.study import Search
from leeway_tuner.tuner import deliberate
from optuna.storages import InMemoryStorage
from plant import RANGES, START, TICK_S, Attainment, Plant, indifferent, interference


def tune(plant: Plant, seconds: float) -> list[tuple[float, Decision]]:
    storage, state, decisions = InMemoryStorage(), State(), []
    end_s = plant.now_s + seconds
    while plant.now_s < end_s:
        plant.pass_time()
        decision, state = deliberate(storage, plant.snapshot(), state, plant.now_s)
        plant.apply(decision)
        decisions.append((plant.now_s, decision))
    return decisions


def best(plant: Plant) -> float:
    space = Space.of(RANGES)
    return max(plant.true_score(space.knobs(point, START, 1)) for point in space.points(START))


def test_the_space_of_the_plant_is_not_a_small_one() -> None:
    assert len(list(Space.of(RANGES).points(START))) > 60


def test_minutes_are_enough_to_come_near_the_best_setting() -> None:
    plants = [Plant(interference, seed, rates_rps={"chat": 4.0, "documents": 1.0}) for seed in range(12)]
    for plant in plants:
        tune(plant, 400)
    start, top = plants[0].true_score(START), best(plants[0])
    reached = [(plant.true_score(plant.record.incumbent) - start) / (top - start) for plant in plants]
    assert min(reached) > 0.7
    assert statistics.mean(reached) > 0.8


def test_with_time_it_comes_nearer() -> None:
    plants = [Plant(interference, seed) for seed in range(12)]
    for plant in plants:
        tune(plant, 1500)
    start, top = plants[0].true_score(START), best(plants[0])
    reached = [(plant.true_score(plant.record.incumbent) - start) / (top - start) for plant in plants]
    assert statistics.mean(reached) > 0.9


def test_the_starting_knobs_stay_when_nothing_is_better() -> None:
    left = candidates = 0
    for seed in range(20):
        plant = Plant(indifferent, seed)
        candidates += sum(decision.reason == "Candidate" for _, decision in tune(plant, 900))
        left += not same(plant.record.incumbent, START)
    assert left <= RISK * candidates


@pytest.mark.parametrize(("binding", "smaller"), [("itl", True), ("ttft", False)])
def test_the_second_look_is_where_the_bound_that_is_broken_can_be_met(binding: Binding, smaller: bool) -> None:
    search = Search(InMemoryStorage(), "plant", "key", Space.of(RANGES), START)
    first = search.ask(START, 1.0, (), binding)
    assert first is not None
    search.settle(State(outcome=Outcome(number=first.number, score=0.1)))
    second = search.ask(START, 1.0, (first.point,), binding)
    assert second is not None
    assert all((there < here) is smaller for there, here in zip(second.point, first.point, strict=True))


def test_requests_fare_better_while_it_searches_than_if_nothing_had_been_tried() -> None:
    for seed in range(6):
        plant = Plant(interference, seed)
        tune(plant, 400)
        lived = statistics.mean(plant.true_score(knobs, at_s) for at_s, knobs in plant.served)
        stayed = statistics.mean(plant.true_score(START, at_s) for at_s, _ in plant.served)
        assert lived > stayed + 0.15


def test_knobs_that_pods_refuse_are_not_pushed_for_ever() -> None:
    plant, storage, state = Plant(interference), InMemoryStorage(), State()
    pushed: list[Knobs] = []
    for _ in range(200):
        plant.pass_time()
        decision, state = deliberate(storage, plant.snapshot(), state, plant.now_s)
        plant.apply(decision)
        if decision.action == "Try":
            pushed.append(decision.record.in_force.model_copy(update={"generation": 1}))
            plant.record = plant.record.back(plant.now_s)  # as the operator takes back what one pod refuses
    assert len(pushed) == PATIENCE_TRIALS
    assert all(one not in pushed[:number] for number, one in enumerate(pushed))
    assert decision.reason == "SearchRests"


@pytest.mark.parametrize("step", [512, 256])
def test_a_knob_of_few_values_is_tried_though_all_is_well(step: int) -> None:
    few = {name: Range(min=512, max=512, step=16) for name in ("prefill_heavy_chunk", "decode_heavy_chunk")}
    ranges = RANGES.model_copy(update={**few, "token_budget": Range(min=512, max=1024, step=step)})
    start = START.model_copy(update={"token_budget": 1024, **dict.fromkeys(few, 512)})
    plant = Plant(lambda knobs, objective, at_s: 1.0, fields={"ranges": ranges, "starting": start})
    plant.record = Record(incumbent=start, started_at_s=plant.now_s)
    tried = [decision.record.in_force.token_budget for _, decision in tune(plant, 300) if decision.action == "Try"]
    assert tried
    assert abs(tried[0] - 1024) == step, "one value at a time while the objectives are met"


@pytest.mark.parametrize("scrape_phase_s", [0.0, 2.0, 4.0])
@pytest.mark.parametrize("worse", [0.0, 0.3])
def test_a_harmful_candidate_is_gone_once_two_scrapes_have_shown_it(worse: float, scrape_phase_s: float) -> None:
    rates_rps = {"chat": 4.0, "documents": 2.0}
    plant = Plant(_good_start_alone(worse), seed=3, scrape_phase_s=scrape_phase_s, rates_rps=rates_rps)
    decisions = tune(plant, 600)
    breaches = [
        (tried_s, back_s)
        for (tried_s, tried), (back_s, back) in zip(
            [item for item in decisions if item[1].action == "Try"],
            [item for item in decisions if item[1].action == "RollBack"],
            strict=False,
        )
        if back.reason == "Breach" and tried.reason == "Candidate"
    ]
    assert breaches
    ticks = 2  # decided at one, and two scrapes before the next but one
    assert all(back_s - tried_s <= ticks * TICK_S for tried_s, back_s in breaches)
    assert plant.record.incumbent.token_budget == START.token_budget


def test_a_search_that_is_over_confirms_its_winner_and_rests() -> None:
    plant = Plant(interference, seed=1, rates_rps={"chat": 8.0, "documents": 4.0})
    decisions = [decision for _, decision in tune(plant, 4000)]
    reasons = [decision.reason for decision in decisions]
    assert "Better" in reasons
    assert reasons.index("Confirm") < reasons.index("SearchOver")
    assert plant.true_score(plant.record.incumbent) > 0.9 * best(plant)


def test_a_winner_that_no_longer_beats_the_starting_knobs_makes_way_for_them() -> None:
    def turns(knobs: Knobs, objective: str, at_s: float) -> float:
        return interference(knobs, objective, 0.0) if at_s < 1700 else 0.8

    plant = Plant(turns, seed=2, rates_rps={"chat": 8.0, "documents": 4.0})
    tune(plant, 600)
    assert plant.record.incumbent.token_budget < START.token_budget
    decisions = [decision for _, decision in tune(plant, 4000)]
    assert "Restore" in {decision.action for decision in decisions}
    assert plant.record.incumbent.token_budget == START.token_budget


def test_trials_stop_when_their_part_of_the_error_budget_is_spent() -> None:
    plant = Plant(_good_start_alone(0.0), seed=5, fields={"exploration_budget_percent": 2})
    decisions = [decision for _, decision in tune(plant, 900)]
    assert "BudgetSpent" in {decision.reason for decision in decisions}
    assert sum(decision.reason == "Candidate" for decision in decisions) <= 3


def _good_start_alone(worse: float) -> Attainment:
    return lambda knobs, objective, at_s: (
        0.99 if knobs.token_budget == START.token_budget == (knobs.prefill_heavy_chunk) else worse
    )
