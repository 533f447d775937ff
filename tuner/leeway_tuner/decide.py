"""The decision: a pure function of a Snapshot, of what is remembered, and of the time."""

import json

from leeway_core.policies import Policies
from leeway_core.reading import Error, Outdated, Stale
from leeway_core.record import SETTLING_S
from leeway_core.snapshot import Snapshot

from leeway_tuner.beginning import begin
from leeway_tuner.case import Answer, Case, same
from leeway_tuner.space import Space
from leeway_tuner.state import Proposal, State
from leeway_tuner.trying import breach_by_now, go_on

UNWATCHED_S = 30.0
"""A trial that nobody has looked after for so long is void."""
ENFORCING_S = 60.0
"""How long pods may take to enforce the knobs of a trial. They do so between two iterations, of which one may take 30 s
before its pod is no longer ready."""
_PUNCTUAL_S = 1.0
"""A visit and its push take less, as a rule."""


def decide(
    snapshot: Snapshot, state: State, now_s: float, proposal: Proposal | None = None, *, exhausted: bool = False
) -> Answer:
    """Return what to do with the knobs, and what to remember.

    Where a trial could begin, the state returned names how bold it may be: ask the study for a proposal and decide
    again with it, or with `exhausted` when it has none.
    """
    space = Space.of(snapshot.ranges)
    case = Case(
        snapshot, state.model_copy(update={"wanted_boldness": None, "outcome": None}), space, proposal, exhausted
    )
    case = _recognise(case)
    return (
        _out_of_bounds(case)
        or _observed_only(case)
        or _unknown_trial(case)
        or _unwatched(case, now_s)
        or _disturbed(case)
        or _blind(case)
        or _taking_over(case)
        or _go_on(case.with_state(awaited=False))
    )


def study_key(snapshot: Snapshot) -> str:
    """Return the name of the search that the Snapshot belongs to: scores of another one tell nothing."""
    starting, policies = snapshot.starting.model_dump(exclude={"generation"}), snapshot.record.policies
    named = [] if policies == Policies() else [json.dumps(policies.model_dump(mode="json"), sort_keys=True)]
    return Space.of(snapshot.ranges).key(snapshot.objectives, starting, *named)


def _recognise(case: Case) -> Case:
    """Forget what no longer holds: the record and the profile are right, the memory is not."""
    key, incumbent = study_key(case.snapshot), case.record.incumbent
    if case.state.key != key:
        case = case.with_state(**dict(State(key=key, ledger=case.state.ledger)))
    if not same(case.state.incumbent, incumbent):
        is_starting = same(incumbent, case.snapshot.starting)
        gain = 0.0 if is_starting else case.state.gain
        case = case.void(failures=0, confirmed=is_starting, gain=gain, incumbent_seen=None)
    trial = case.state.trial
    if trial is not None and not same(trial.candidate, case.record.candidate):
        # What is taken back before every pod has enforced it, some pod refuses as a rule.
        case = case.untried(trial) if case.state.awaited else case.void()
    return case


def _out_of_bounds(case: Case) -> Answer | None:
    if case.snapshot.ranges.hold(case.record.incumbent):
        return None
    record = case.record.model_copy(
        update={
            "incumbent": case.push(case.snapshot.starting),
            "candidate": None,
            "trying": False,
            "started_at_s": case.now_s,
        }
    )
    message = "The knobs in force are outside the bounds, which have changed: the starting knobs are in force"
    return case.void(confirmed=True, gain=0.0).answer("Restore", "OutsideBounds", message, record=record)


def _observed_only(case: Case) -> Answer | None:
    if case.snapshot.mode != "Observe":
        return None
    return _give_up(case, "ModeObserve", "Mode Observe turns no knobs")


def _unknown_trial(case: Case) -> Answer | None:
    if case.record.candidate is None or case.state.trial is not None:
        return None
    return _give_up(case, "TrialUnknown", "Nothing is remembered of the trial that is on record: it is void")


def _unwatched(case: Case, now_s: float) -> Answer | None:
    gap_s = max(case.now_s - case.state.seen_s, now_s - case.now_s)
    if case.state.trial is None or gap_s <= UNWATCHED_S:
        return None
    return _give_up(case, "Unwatched", f"Nobody looked after the trial for {gap_s:.0f} s: it is void")


def _disturbed(case: Case) -> Answer | None:
    disturbance, trial = case.snapshot.disturbance, case.state.trial
    pods = case.snapshot.pods
    if disturbance is None or disturbance == "KnobsPending":
        if not pods or not all(pod.ready for pod in pods):
            disturbance = "PodsNotReady"
        elif any(pod.since_s > case.record.started_at_s for pod in pods):
            if trial is not None:
                return _give_up(case, "PodRestarted", "A pod has restarted: the trial is void")
            if disturbance is None:
                return _measure_anew(case, max(pod.since_s for pod in pods))
    if disturbance is None:
        return _measure_anew(case, case.now_s) if case.state.disturbed and trial is None else None
    if disturbance == "KnobsPending":
        if _may_take_over(case):
            return None
        if trial is not None and case.state.awaited:
            case = case.untried(trial)
    message = {
        "ReplicasChanging": "Pods come or go: nothing is compared meanwhile",
        "PodsNotReady": "Not every pod is ready: nothing is compared meanwhile",
        "KnobsPending": "Not every pod has taken over the knobs: nothing is compared meanwhile",
        "KnobsEdited": "Somebody else has turned knobs: nothing is compared until they are put right",
    }[disturbance]
    return _give_up(case.with_state(disturbed=True), disturbance, message)


def _measure_anew(case: Case, since_s: float) -> Answer:
    record = case.record.back(min(since_s, case.now_s), case.above)
    message = "The pods serve again: a new window begins"
    return case.with_state(disturbed=False).answer("Hold", "NewWindow", message, record=record)


def _may_take_over(case: Case) -> bool:
    """Tell whether pods may still be at an iteration that they began before the knobs were turned."""
    patience_s = ENFORCING_S if case.state.trial is not None and case.state.awaited else SETTLING_S
    return case.now_s - case.record.started_at_s <= patience_s


def _taking_over(case: Case) -> Answer | None:
    """Wait, but for harm, until every pod is seen to enforce the knobs: from then on requests count for them.

    A visit that took long pushed them late, or a pod was long at an iteration. The look for harm begins a settling time
    earlier, with the last visit, as ever: up to now it rested on all that was seen since the push.
    """
    pending = case.snapshot.disturbance == "KnobsPending"
    started_at_s = case.now_s - SETTLING_S
    late = case.state.awaited and started_at_s > case.record.started_at_s + _PUNCTUAL_S
    if not pending and not late:
        return None
    trial = case.state.trial
    if trial is not None and case.record.trying and (found := breach_by_now(case, trial)):
        return found
    if pending:
        return case.answer("Hold", "KnobsPending", "The pods are taking over the knobs")
    record = case.record.model_copy(update={"started_at_s": started_at_s})
    message = "Every pod has taken over the knobs: their window begins"
    return case.with_state(awaited=False).answer("Hold", "NewWindow", message, record=record)


def _go_on(case: Case) -> Answer:
    return go_on(case, case.state.trial) if case.state.trial else begin(case)


def _blind(case: Case) -> Answer | None:
    lost = case.lost
    if lost is None:
        return None
    if isinstance(lost, Error):
        return _give_up(case, "TelemetryError", lost.message[:900])
    if isinstance(lost, Stale):
        return _give_up(case, "TelemetryStale", f"The last scrape of some gateway is {lost.age_s:.0f} s old")
    if isinstance(lost, Outdated):
        return _give_up(case, "TelemetryOutdated", "Some gateway does not judge by the profile's objectives yet")
    return _give_up(case, "TelemetryMissing", "Prometheus has no series of some gateway or objective")


def _give_up(case: Case, reason: str, message: str) -> Answer:
    """Go back to the incumbent without having learned anything, or hold what is in force."""
    if case.record.candidate is None:
        return case.void().answer("Hold", reason, message)
    return case.void().answer("RollBack", reason, f"{message}; the incumbent is in force", record=case.back())
