"""Whatever Snapshots come: knobs stay in bounds, and what is not known moves nothing."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway_core.decision import Decision
from leeway_core.knobs import Knobs
from leeway_core.policies import EffectivePriority, Policies, ShortestPrompt
from leeway_core.ranges import KnobRanges, Range
from leeway_core.reading import Error, Idle, Missing, Outdated, Reading, Stale, TooFewSamples, Value, is_lost
from leeway_core.record import SETTLING_S, Record
from leeway_core.snapshot import PodSeen, Readings, Snapshot, Telemetry
from leeway_tuner.beginning import PATIENCE_TRIALS
from leeway_tuner.case import MINIMUM_REQUESTS, same
from leeway_tuner.decide import ENFORCING_S, decide, study_key
from leeway_tuner.evidence import Window, breach
from leeway_tuner.space import Space
from leeway_tuner.state import Proposal, State
from plant import CHAT, DOCUMENTS, RANGES, START, TICK_S, Plant, interference

SMALL = KnobRanges(
    token_budget=Range(min=64, max=512, step=64),
    prefill_heavy_chunk=Range(min=32, max=512, step=32),
    decode_heavy_chunk=Range(min=32, max=256, step=32),
    prefill_heavy_percent=Range(min=0, max=100, step=10),
    running_sequences=Range(min=1, max=32, step=1),
)
APART = SMALL.model_copy(
    update={
        "prefill_heavy_chunk": Range(min=256, max=512, step=64),
        "decode_heavy_chunk": Range(min=0, max=128, step=32),
    }
)
COARSE = SMALL.model_copy(
    update={
        "token_budget": Range(min=256, max=512, step=256),
        "running_sequences": Range(min=8, max=24, step=8),
    }
)

ages = st.floats(0, 20)
shares = st.floats(0, 1)
readings: st.SearchStrategy[Reading] = st.one_of(
    st.tuples(shares, st.integers(0, 60), ages).map(lambda of: Value(value=of[0], samples=of[1], age_s=of[2])),
    ages.map(lambda age_s: Idle(age_s=age_s)),
    st.just(Missing()),
    st.just(Outdated(pods=("gateway",))),
    ages.map(lambda age_s: Stale(age_s=age_s)),
    ages.map(lambda age_s: TooFewSamples(samples=3, age_s=age_s)),
    st.text(max_size=2000).map(lambda message: Error(message=message)),
)
values = st.tuples(st.sampled_from((0.0, 0.1, 0.5, 0.9, 1.0)), st.sampled_from((5, 20, 80))).map(
    lambda of: Value(value=of[0], samples=of[1], age_s=1.0)
)


@st.composite
def knobs_inside(draw: st.DrawFn, ranges: KnobRanges) -> Knobs:
    bounds = {name: getattr(ranges, name) for name in KnobRanges.model_fields}
    return Knobs(generation=1, **{name: draw(st.integers(each.min, each.max)) for name, each in bounds.items()})


@st.composite
def trades(draw: st.DrawFn, now_s: float, trying: bool) -> Telemetry:
    """Candidates do better on the whole, at the cost of one objective: that takes several windows to be sure of."""
    total = Value(value=0.9 if trying else 0.5, samples=80, age_s=1.0)
    losing = Value(
        value=0.5 if trying else draw(st.sampled_from((0.9, 1.0))),
        samples=draw(st.sampled_from((5, 20, 80))),
        age_s=1.0,
    )
    objectives = {"chat": total, "documents": losing}
    return Telemetry(from_s=now_s - 10, to_s=now_s, attainment=total, objectives=objectives, goodput_rps=total)


@st.composite
def telemetries(draw: st.DrawFn, now_s: float, trying: bool) -> Telemetry:
    telemetry = draw(settled(now_s, trying))
    if not trying or draw(st.booleans()):
        return telemetry
    readings = {name: getattr(draw(settled(now_s, trying)), name) for name in Readings.model_fields}
    return telemetry.model_copy(update={"unsettled": Readings(**readings)})


@st.composite
def settled(draw: st.DrawFn, now_s: float, trying: bool) -> Telemetry:
    if draw(st.booleans()):
        return draw(trades(now_s, trying))
    some = values if draw(st.integers(0, 19)) else readings
    span_s = draw(st.sampled_from((10.0, 15.0, 30.0, 5.0, 0.0)))
    names = draw(st.sampled_from((["chat", "documents"], ["chat", "documents"], ["chat"], [])))
    return Telemetry(
        from_s=now_s - span_s,
        to_s=now_s,
        attainment=draw(some),
        objectives={name: draw(some) for name in names},
        goodput_rps=draw(some),
    )


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[Snapshot, State, Decision, State]]:
    """A profile's life: mostly carried out as decided, now and then not."""
    ranges = draw(st.sampled_from((SMALL, APART, COARSE, RANGES)))
    start = draw(knobs_inside(ranges))
    record, state, now_s = Record(incumbent=start, started_at_s=0.0), State(), 100.0
    mode, life = draw(st.sampled_from(("Auto", "Auto", "Auto", "Auto", "Recommend", "Observe"))), []
    for sequence in range(1, draw(st.integers(10, 60))):
        now_s += draw(st.sampled_from((5.0, 5.0, 10.0, 20.0)))
        mishap = draw(st.integers(0, 59))
        if mishap == 0:
            ranges = draw(st.sampled_from((SMALL, APART, COARSE, RANGES)))
            start = draw(knobs_inside(ranges))
        elif mishap == 1:
            record = record.back(now_s)
        elif mishap == 2:
            state = State()
        snapshot = Snapshot(
            uid="u",
            namespace="n",
            name="p",
            generation=1,
            sequence=sequence,
            now_s=now_s,
            mode=mode,
            approved_decision=draw(st.sampled_from((None, sequence - 1))),
            objectives=(CHAT, DOCUMENTS),
            ranges=ranges,
            window_s=10.0,
            exploration_budget_percent=draw(st.sampled_from((100, 100, 100, 50, 0))),
            starting=start,
            record=record,
            pods=(PodSeen(name="a", ready=mishap != 3, since_s=now_s if mishap == 4 else 0.0),),
            disturbance=draw(st.sampled_from(("KnobsEdited", "KnobsPending", "ReplicasChanging")))
            if mishap == 5
            else None,
            telemetry=draw(telemetries(now_s, record.trying)),
        )
        decision, following = decide(snapshot, state, now_s)
        if following.wanted_boldness is not None:
            point = tuple(
                draw(st.sampled_from(each.values if mishap != 7 else (7,))) for each in Space.of(ranges).dimensions
            )
            proposal = Proposal(number=sequence, point=point)
            decision, following = decide(
                snapshot, state, now_s, proposal if mishap != 8 else None, exhausted=mishap in {8, 9}
            )
        life.append((snapshot, state, decision, following))
        state = following
        if mishap != 6:
            record = decision.record
    return life


@settings(max_examples=100)
@given(lives())
def test_whatever_comes_the_decision_keeps_its_promises(life: list[tuple[Snapshot, State, Decision, State]]) -> None:
    breaches = Breaches()
    for snapshot, before, decision, after in life:
        assert decision.sequence == snapshot.sequence
        if before.key != after.key:
            breaches = Breaches()
        knobs_stay_in_bounds_and_generations_grow(snapshot, decision)
        only_values_move_a_knob_away_from_the_incumbent(snapshot, decision)
        lost_telemetry_ends_at_the_incumbent(snapshot, decision, after)
        breaches.see(snapshot, before, decision)


def knobs_stay_in_bounds_and_generations_grow(snapshot: Snapshot, decision: Decision) -> None:
    record, before = decision.record, snapshot.record
    assert snapshot.ranges.hold(record.incumbent)
    if not same(record.in_force, before.in_force):
        assert snapshot.ranges.hold(record.in_force)
        assert record.in_force.generation > before.newest_generation
        assert record.started_at_s == snapshot.now_s


def only_values_move_a_knob_away_from_the_incumbent(snapshot: Snapshot, decision: Decision) -> None:
    if decision.action in {"Try", "Promote"}:
        assert isinstance(snapshot.telemetry.attainment, Value)
        assert isinstance(snapshot.telemetry.goodput_rps, Value)
        assert snapshot.mode != "Observe"
        assert snapshot.disturbance is None
        assert all(pod.ready for pod in snapshot.pods)
    elif decision.action in {"Hold", "Advise"}:
        assert same(decision.record.in_force, snapshot.record.in_force)
    else:
        assert not decision.record.trying


def lost_telemetry_ends_at_the_incumbent(snapshot: Snapshot, decision: Decision, after: State) -> None:
    telemetry = snapshot.telemetry
    readings = [telemetry.attainment, telemetry.goodput_rps, *telemetry.objectives.values()]
    if any(is_lost(reading) for reading in readings):
        assert not decision.record.trying
        assert after.trial is None


class Breaches:
    """What Snapshots themselves tell of candidates, whatever the decisions say that they rest on."""

    def __init__(self) -> None:
        self.incumbent: Window | None = None
        self.candidate: Window | None = None
        self.bound = math.inf
        """How far the next candidate may be from the incumbent."""

    def see(self, snapshot: Snapshot, state: State, decision: Decision) -> None:
        """Check a candidate that is put on trial, and add up what is seen of it and of the incumbent around it."""
        trying, going_on = snapshot.record.trying, same(snapshot.record.candidate, decision.record.candidate)
        measured = Window.of(snapshot.telemetry)
        if decision.action == "Try" and not going_on:
            boldness = self._boldness(snapshot, decision.record)
            assert boldness <= self.bound
            assert decision.evidence.boldness == boldness
            assert decision.evidence.boldness_cap is not None
            assert boldness <= decision.evidence.boldness_cap
            self.incumbent, self.candidate, self.bound = measured, None, math.inf
            return
        if decision.reason == "SearchOver":
            self.bound = max(self.bound, Space.of(snapshot.ranges).smallest_step(snapshot.record.incumbent))
        if snapshot.record.candidate is None or not _is_judged(snapshot, state):
            return
        if decision.reason == "NewWindow" and not trying:
            return  # these requests ended under the candidate for a part
        seen, incumbent = [self.candidate], self.incumbent
        if trying:
            unsettled = snapshot.telemetry.unsettled
            windows = measured, Window.of(unsettled) if unsettled else None
            seen = [each.plus(self.candidate) if each else None for each in windows]
        elif measured and measured.span_s >= 0.98 * snapshot.window_s and measured.total.ended >= MINIMUM_REQUESTS:
            incumbent = measured.plus(incumbent)
        assert incumbent is not None
        if any(each and breach(each, incumbent, snapshot.objectives) for each in seen):
            assert decision.action == "RollBack"
            assert not going_on
            self.bound = self._boldness(snapshot, snapshot.record)
        if decision.reason == "Compare":
            self.incumbent, self.candidate = incumbent, seen[0]

    def _boldness(self, snapshot: Snapshot, record: Record) -> float:
        assert record.candidate is not None
        space = Space.of(snapshot.ranges)
        return space.boldness(space.point(record.candidate), record.incumbent)


def _is_judged(snapshot: Snapshot, state: State) -> bool:
    """Tell whether the trial on record is one that the tuner knows of, and nothing disturbs it."""
    readings = [snapshot.telemetry.attainment, snapshot.telemetry.goodput_rps, *snapshot.telemetry.objectives.values()]
    return (
        state.key == study_key(snapshot)
        and state.trial is not None
        and same(state.trial.candidate, snapshot.record.candidate)
        and same(state.incumbent, snapshot.record.incumbent)
        and snapshot.disturbance is None
        and all(pod.ready and pod.since_s <= snapshot.record.started_at_s for pod in snapshot.pods)
        and not any(is_lost(reading) for reading in readings)
    )


def plant_in_trial() -> tuple[Plant, State]:
    plant, state = Plant(interference), State()
    for _ in range(20):
        plant.pass_time()
        decision, state = decide(plant.snapshot(), state, plant.now_s, Proposal(number=1, point=(224, 224)))
        plant.apply(decision)
        if plant.record.trying:
            return plant, state
    raise AssertionError("no trial began")


def after(plant: Plant, state: State, **fields: Any) -> Decision:
    plant.pass_time()
    plant.fields.update(fields)
    return decide(plant.snapshot(), state, plant.now_s)[0]


def window(now_s: float, total: float, **objectives: float) -> Telemetry:
    def reading(share: float) -> Value:
        return Value(value=share, samples=40, age_s=1.0)

    return Telemetry(
        from_s=now_s - 10,
        to_s=now_s,
        attainment=reading(total),
        objectives={name: reading(share) for name, share in objectives.items()},
        goodput_rps=reading(total),
    )


def go_on(plant: Plant, state: State, total: float, **objectives: float) -> tuple[Decision, State]:
    """Let a window pass that comes to these shares, and carry out what is decided."""
    _, state = live(plant, state, TICK_S, nothing_yet)
    plant.pass_time(10)
    decisions, state = live(plant, state, TICK_S, lambda now_s: window(now_s, total, **objectives))
    return decisions[-1], state


def live(
    plant: Plant, state: State, seconds: float, seen: Callable[[float], Telemetry] | None = None
) -> tuple[list[Decision], State]:
    """Carry out what is decided at each tick, on these readings if not on those of the plant."""
    decisions = []
    plant.fields.pop("telemetry", None)
    for _ in range(round(seconds / TICK_S)):
        plant.pass_time()
        if seen is not None:
            plant.fields["telemetry"] = seen(plant.now_s)
        decision, state = decide(plant.snapshot(), state, plant.now_s)
        plant.apply(decision)
        decisions.append(decision)
    return decisions, state


def nothing_yet(now_s: float) -> Telemetry:
    return all_alike(now_s, TooFewSamples(samples=0, age_s=1.0))


def nobody(now_s: float) -> Telemetry:
    return all_alike(now_s, Idle(age_s=1.0))


def all_alike(now_s: float, reading: Reading) -> Telemetry:
    objectives = {"chat": reading, "documents": reading}
    return Telemetry(from_s=now_s - 10, to_s=now_s, attainment=reading, objectives=objectives, goodput_rps=reading)


def good_incumbent_in_trial() -> tuple[Plant, State]:
    """A trial of what is next to an incumbent that meets all objectives."""
    plant, state = Plant(interference), State()
    near = tuple(each.values[-2] for each in Space.of(RANGES).dimensions)
    plant.pass_time(20)
    plant.fields["telemetry"] = window(plant.now_s, 1.0, chat=1.0, documents=1.0)
    decision, state = decide(plant.snapshot(), state, plant.now_s, Proposal(number=1, point=near))
    assert decision.action == "Try"
    plant.apply(decision)
    return plant, state


def test_a_breach_that_only_the_incumbents_window_proves_makes_what_comes_next_less_bold() -> None:
    plant, state = plant_in_trial()
    assert state.trial is not None
    boldness = state.trial.boldness
    decision, state = go_on(plant, state, 0.8, chat=0.9, documents=0.6)
    assert (decision.action, decision.reason) == ("RollBack", "Compare")
    decision, state = go_on(plant, state, 0.3, chat=0.0, documents=1.0)
    assert (decision.action, decision.reason) == ("RollBack", "Breach")
    assert same(decision.record.in_force, START)
    assert state.radius <= boldness / 2


def at_the_end_of_a_search(radius: float) -> tuple[Plant, State]:
    plant = Plant(interference)
    found = START.model_copy(update=dict.fromkeys(("token_budget", "prefill_heavy_chunk", "decode_heavy_chunk"), 224))
    plant.record = plant.record.only(found, plant.now_s)
    state = State(
        key=study_key(plant.snapshot()), incumbent=found, failures=PATIENCE_TRIALS, confirmed=False, radius=radius
    )
    return plant, state


def test_starting_knobs_that_are_tried_again_and_do_harm_make_what_comes_next_less_bold() -> None:
    plant, state = at_the_end_of_a_search(1.0)
    decision, state = go_on(plant, state, 1.0, chat=1.0, documents=1.0)
    assert (decision.action, decision.reason) == ("Try", "Confirm")
    assert same(decision.record.in_force, START)
    decision, state = go_on(plant, state, 0.0, chat=0.0, documents=0.0)
    assert (decision.action, decision.reason) == ("RollBack", "Breach")
    assert decision.evidence.boldness is not None
    assert state.radius <= decision.evidence.boldness / 2


def test_a_search_that_has_rested_has_the_smallest_step_in_reach_whatever_has_been_a_breach() -> None:
    plant, state = at_the_end_of_a_search(0.01)
    decision, state = go_on(plant, state.model_copy(update={"confirmed": True}), 1.0, chat=1.0, documents=1.0)
    assert decision.reason == "SearchOver"
    assert state.radius == Space.of(RANGES).smallest_step(plant.record.incumbent) > 0.01


def test_after_a_breach_the_way_back_to_the_starting_knobs_is_taken_in_steps() -> None:
    plant, state = at_the_end_of_a_search(0.2)
    incumbent, budgets = plant.record.incumbent, []
    for _ in range(100):
        decision, state = go_on(plant, state, 1.0, chat=1.0, documents=1.0)
        if decision.reason == "Confirm":
            assert decision.evidence.boldness is not None
            assert decision.evidence.boldness_cap is not None
            assert decision.evidence.boldness <= decision.evidence.boldness_cap
            budgets.append(decision.record.in_force.token_budget)
        if decision.action == "Restore":
            break
    assert budgets == sorted(budgets)
    assert incumbent.token_budget < budgets[0] < budgets[-1] == START.token_budget
    assert same(plant.record.in_force, START), "as good as what was found"


def test_a_pause_of_the_traffic_confirms_nothing_and_is_no_harm() -> None:
    plant, begun = at_the_end_of_a_search(1.0)
    incumbent = plant.record.incumbent
    decision, state = go_on(plant, begun, 1.0, chat=1.0, documents=1.0)
    assert decision.reason == "Confirm"
    decisions, state = live(plant, state, 120, nobody)
    turned = [(decision.action, decision.reason) for decision in decisions if decision.action != "Hold"]
    assert turned == [("RollBack", "Starved"), ("RollBack", "TooFewSamples")]
    assert decisions[-1].reason == "Idle"
    assert same(plant.record.in_force, incumbent)
    assert not state.confirmed
    assert (state.radius, state.tried, state.failures) == (begun.radius, begun.tried, begun.failures)
    decision, _ = go_on(plant, state, 1.0, chat=1.0, documents=1.0)
    assert decision.reason == "Confirm", "it is tried again"


def until_it_is_back(plant: Plant, state: State, seen: Callable[[float], Telemetry]) -> tuple[Decision, State]:
    for _ in range(20):
        (decision,), state = live(plant, state, TICK_S, seen)
        if decision.action == "RollBack":
            return decision, state
    raise AssertionError("the candidate stays in force")


def test_requests_that_wait_under_a_candidate_and_end_late_after_it_are_harm() -> None:
    plant, state = good_incumbent_in_trial()
    tried_s = plant.now_s
    assert state.trial is not None
    boldness, share = state.trial.boldness, state.trial.incumbent_seen.total.share
    decision, state = until_it_is_back(plant, state, nobody)
    assert decision.reason == "Starved"
    assert plant.now_s - tried_s <= SETTLING_S + 2 * 10.0 + TICK_S
    assert same(decision.record.in_force, START)
    decision, state = go_on(plant, state, 0.2, chat=0.2, documents=0.2)
    assert (decision.action, decision.reason) == ("RollBack", "Starved")
    assert state.radius <= boldness < 1
    assert state.outcome is not None
    assert state.outcome.score == -share


def test_requests_that_nobody_sent_under_a_candidate_tell_nothing_of_it() -> None:
    plant, state = good_incumbent_in_trial()
    _, state = until_it_is_back(plant, state, nobody)
    decision, state = go_on(plant, state, 1.0, chat=1.0, documents=1.0)
    assert (decision.action, decision.reason) == ("RollBack", "TooFewSamples")
    assert state.outcome is None
    assert state.radius == State().radius
    assert len(state.tried) == 1, "others come first"


def test_pods_may_finish_a_long_iteration_before_they_enforce_a_candidate() -> None:
    plant, state = plant_in_trial()
    candidate = plant.record.in_force
    plant.fields["disturbance"] = "KnobsPending"
    decisions, state = live(plant, state, 40)
    assert {(decision.action, decision.reason) for decision in decisions} == {("Hold", "KnobsPending")}
    del plant.fields["disturbance"]
    _, state = live(plant, state, TICK_S)
    assert plant.record.in_force == candidate
    assert plant.record.settled_at_s == plant.now_s, "requests count from when all pods are seen to have the knobs"
    decisions, state = live(plant, state, 60)
    assert next(decision.reason for decision in decisions if decision.action != "Hold") == "Compare"


def test_pods_that_never_enforce_a_candidate_end_its_trial() -> None:
    plant, state = plant_in_trial()
    point = Space.of(RANGES).point(plant.record.in_force)
    plant.fields["disturbance"] = "KnobsPending"
    decisions, state = live(plant, state, ENFORCING_S + TICK_S)
    assert (decisions[-1].action, decisions[-1].reason) == ("RollBack", "KnobsPending")
    assert same(plant.record.in_force, START)
    assert (state.tried, state.failures, state.outcome) == ((point,), 1, None)


def test_a_breach_ends_a_trial_that_not_all_pods_have_joined() -> None:
    plant, state = good_incumbent_in_trial()
    plant.fields["disturbance"] = "KnobsPending"

    def late(now_s: float) -> Telemetry:
        unsettled = window(now_s, 0.2, chat=0.2, documents=0.2)
        readings = {name: getattr(unsettled, name) for name in Readings.model_fields}
        return nothing_yet(now_s).model_copy(update={"unsettled": Readings(**readings)})

    (decision,), _ = live(plant, state, TICK_S, late)
    assert (decision.action, decision.reason) == ("RollBack", "Breach")


def test_lost_telemetry_ends_a_trial_that_not_all_pods_have_joined() -> None:
    plant, state = plant_in_trial()
    plant.fields["disturbance"] = "KnobsPending"
    (decision,), _ = live(plant, state, TICK_S, lambda now_s: all_alike(now_s, Missing()))
    assert (decision.action, decision.reason) == ("RollBack", "TelemetryMissing")


def test_what_was_served_while_a_visit_took_long_does_not_count_for_the_candidate() -> None:
    plant, state = plant_in_trial()
    candidate = plant.record.in_force
    plant.pass_time(12)
    (decision,), state = live(plant, state, TICK_S)
    assert (decision.action, decision.reason) == ("Hold", "NewWindow")
    assert plant.record.in_force == candidate
    assert plant.record.settled_at_s == plant.now_s
    (decision,), state = live(plant, state, TICK_S)
    assert decision.reason == "MeasuringCandidate"


def test_a_way_back_that_pods_refuse_is_not_pushed_again_at_once() -> None:
    plant, state = at_the_end_of_a_search(1.0)
    decision, state = go_on(plant, state, 1.0, chat=1.0, documents=1.0)
    assert decision.reason == "Confirm"
    plant.record = plant.record.back(plant.now_s)
    decisions, state = live(plant, state, 200, lambda now_s: window(now_s, 1.0, chat=1.0, documents=1.0))
    assert {decision.action for decision in decisions} == {"Hold"}
    assert not state.confirmed
    plant.pass_time(1000)
    decisions, state = live(plant, state, 20, lambda now_s: window(now_s, 1.0, chat=1.0, documents=1.0))
    assert "Confirm" in {decision.reason for decision in decisions}


def test_other_policies_begin_a_search_of_their_own() -> None:
    plant, state = plant_in_trial()
    state = state.model_copy(update={"tried": ((224, 224),), "failures": 5, "rest_until_s": 1e9, "trial": None})
    plant.record = plant.record.back(plant.now_s).model_copy(update={"policies": Policies(ranking=ShortestPrompt())})
    plant.pass_time()
    _, following = decide(plant.snapshot(), state, plant.now_s)
    assert following.key != state.key
    assert (following.tried, following.failures, following.rest_until_s) == ((), 0, 0.0)
    keys = set()
    for classes in ({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}):
        policies = Policies(ranking=EffectivePriority(class_points=classes))
        plant.record = plant.record.model_copy(update={"policies": policies})
        keys.add(study_key(plant.snapshot()))
    assert len(keys) == 1, "whatever order they are written in"


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (Missing(), "TelemetryMissing"),
        (Stale(age_s=60), "TelemetryStale"),
        (Outdated(pods=("gateway",)), "TelemetryOutdated"),
        (Error(message="No Prometheus answers"), "TelemetryError"),
    ],
)
def test_lost_telemetry_is_named(reading: Reading, reason: str) -> None:
    plant, state = plant_in_trial()
    lost = Telemetry(attainment=reading, objectives={"chat": reading}, goodput_rps=reading)
    decision = after(plant, state, telemetry=lost)
    assert (decision.action, decision.reason) == ("RollBack", reason)
    assert same(decision.record.in_force, START)
    assert decision.record.candidate is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mode": "Observe"}, "ModeObserve"),
        ({"disturbance": "ReplicasChanging"}, "ReplicasChanging"),
        ({"disturbance": "KnobsEdited"}, "KnobsEdited"),
        ({"pods": ()}, "PodsNotReady"),
        ({"pods": (PodSeen(name="a", ready=True, since_s=1e9),)}, "PodRestarted"),
    ],
)
def test_what_disturbs_a_trial_ends_it_at_the_incumbent(fields: dict[str, Any], reason: str) -> None:
    plant, state = plant_in_trial()
    decision = after(plant, state, **fields)
    assert (decision.action, decision.reason) == ("RollBack", reason)
    assert same(decision.record.in_force, START)


def test_what_pods_served_before_tuning_began_counts_from_their_start() -> None:
    plant = Plant(interference)
    started_s = plant.now_s + 20
    plant.pass_time(90)
    pods = (PodSeen(name="a", ready=True, since_s=started_s - 5), PodSeen(name="b", ready=True, since_s=started_s))
    decision = after(plant, State(), pods=pods)
    assert (decision.action, decision.reason) == ("Hold", "NewWindow")
    assert decision.record.started_at_s == started_s
    plant.apply(decision)
    assert after(plant, State(), pods=pods).reason != "NewWindow"


def test_a_trial_that_the_tuner_has_forgotten_is_void() -> None:
    plant, _ = plant_in_trial()
    decision = after(plant, State())
    assert (decision.action, decision.reason) == ("RollBack", "TrialUnknown")
    assert same(decision.record.in_force, START)


def test_a_trial_that_nobody_looked_after_is_void() -> None:
    plant, state = plant_in_trial()
    plant.pass_time(60)
    decision = after(plant, state)
    assert (decision.action, decision.reason) == ("RollBack", "Unwatched")


def test_a_trial_that_the_operator_took_back_is_forgotten() -> None:
    plant, state = plant_in_trial()
    plant.record = plant.record.back(plant.now_s)
    plant.pass_time()
    decision, following = decide(plant.snapshot(), state, plant.now_s)
    assert decision.action == "Hold"
    assert following.trial is None


def test_changed_bounds_are_obeyed_at_once() -> None:
    plant, state = plant_in_trial()
    narrow = Range(min=16, max=1024, step=16)
    ranges = RANGES.model_copy(
        update=dict.fromkeys(("token_budget", "prefill_heavy_chunk", "decode_heavy_chunk"), narrow)
    )
    start = START.model_copy(update=dict.fromkeys(("token_budget", "prefill_heavy_chunk", "decode_heavy_chunk"), 1024))
    decision = after(plant, state, ranges=ranges, starting=start)
    assert (decision.action, decision.reason) == ("Restore", "OutsideBounds")
    assert same(decision.record.in_force, start)
    assert decision.record.in_force.generation > plant.record.in_force.generation


def test_recommend_advises_and_tries_only_what_is_approved() -> None:
    plant, state = Plant(interference, fields={"mode": "Recommend"}), State()
    actions: list[Decision] = []
    for _ in range(12):
        plant.pass_time()
        decision, state = decide(plant.snapshot(), state, plant.now_s, Proposal(number=1, point=(224, 224)))
        plant.apply(decision)
        actions.append(decision)
    advised = next(decision for decision in actions if decision.action == "Advise")
    assert advised.advised is not None
    assert advised.advised.token_budget == 224
    assert {decision.action for decision in actions} == {"Hold", "Advise"}
    assert actions[-1].reason == "AwaitingApproval"
    plant.fields["approved_decision"] = advised.sequence
    decision = after(plant, state)
    assert decision.action == "Try"
    assert same(decision.record.in_force, advised.advised)


def test_a_space_has_what_pods_take_and_turns_both_chunks_as_one() -> None:
    for ranges, start in product((SMALL, RANGES), (START,)):
        space = Space.of(ranges)
        for point in space.points(start):
            knobs = space.knobs(point, start, 1)
            assert knobs.prefill_heavy_chunk == knobs.decode_heavy_chunk <= knobs.token_budget
            assert knobs.running_sequences <= knobs.token_budget


def test_chunks_whose_bounds_lie_apart_are_searched_with_the_share_of_pods() -> None:
    names = {knob for dimension in Space.of(APART).dimensions for knob in dimension.knobs}
    assert {"prefill_heavy_chunk", "decode_heavy_chunk", "prefill_heavy_percent"} <= names


def test_chunks_that_differ_are_left_alone_on_a_way_back_that_does_not_turn_them() -> None:
    found = Knobs(
        generation=1,
        token_budget=512,
        prefill_heavy_chunk=480,
        decode_heavy_chunk=128,
        prefill_heavy_percent=50,
        running_sequences=16,
    )
    nearer = Space.of(SMALL).towards(found.model_copy(update={"running_sequences": 1}), found, 0.45, 2)
    assert nearer == found.model_copy(update={"running_sequences": 4, "generation": 2})
    assert SMALL.hold(nearer)


def test_a_share_of_pods_that_changes_nothing_is_not_searched() -> None:
    one = Range(min=256, max=256, step=64)
    alike = SMALL.model_copy(update={"prefill_heavy_chunk": one, "decode_heavy_chunk": one})
    names = {knob for dimension in Space.of(alike).dimensions for knob in dimension.knobs}
    assert names == {"token_budget", "running_sequences"}


def test_the_next_value_of_a_knob_is_in_reach_however_far_it_is_unless_a_breach_forbids() -> None:
    space = Space.of(COARSE)
    start = START.model_copy(
        update={
            "token_budget": 512,
            "prefill_heavy_chunk": 256,
            "decode_heavy_chunk": 256,
            "running_sequences": 8,
        }
    )
    here = dict(zip((each.knobs[0] for each in space.dimensions), space.point(start), strict=True))

    def in_reach(limit: float, **turned: int) -> bool:
        return space.in_reach(tuple({**here, **turned}.values()), start, 0.35, limit)

    assert in_reach(1.0, token_budget=256)
    assert in_reach(1.0, running_sequences=16)
    assert not in_reach(1.0, running_sequences=24)
    assert not in_reach(0.7, token_budget=256)
    assert in_reach(0.7, running_sequences=16)
