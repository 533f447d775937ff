"""Whether a trial begins, and with which candidate."""

from leeway_core.decision import Evidence
from leeway_core.knobs import Knobs
from leeway_core.reading import Idle

from leeway_tuner.binding import binding
from leeway_tuner.case import MINIMUM_REQUESTS, Answer, Case, same
from leeway_tuner.evidence import Window, numbers
from leeway_tuner.state import Advice, Proposal, Trial

PATIENCE_TRIALS = 10
"""The search is over when so many trials in a row have found nothing better."""
_CAUTIOUS, _FREE = 0.35, 0.75
"""How bold a trial may be while the incumbent meets the objectives, and while there is less to lose. The next value of
a knob may be further away: without a breach it is in reach all the same."""


def begin(case: Case) -> Answer:
    """Start a trial if the incumbent has been measured and nothing speaks against it."""
    seen = case.full_window
    if seen is None:
        return _wait(case)
    evidence = numbers(None, seen)
    if case.now_s < case.state.rest_until_s:
        return case.answer("Hold", "SearchRests", "The search has found nothing better for a while", evidence=evidence)
    objectives, percent = case.snapshot.objectives, case.snapshot.exploration_budget_percent
    if overspent := case.state.ledger.overspent(objectives, percent):
        message = f"Trials have spent their part of the error budget of objective {overspent}"
        return case.answer("Hold", "BudgetSpent", message, evidence=evidence)
    if case.exhausted or case.state.failures >= PATIENCE_TRIALS:
        return _close(case, seen, evidence)
    return _propose(case, seen, evidence)


def _wait(case: Case) -> Answer:
    reading = case.snapshot.telemetry.attainment
    if isinstance(reading, Idle):
        return case.answer("Hold", "Idle", "There is no traffic to measure by")
    message = f"The incumbent is measured: a window of {case.snapshot.window_s:.0f} s and {MINIMUM_REQUESTS} requests"
    return case.answer("Hold", "Measuring", message, evidence=numbers(None, case.window))


def _propose(case: Case, seen: Window, evidence: Evidence) -> Answer:
    meets = seen.plus(case.state.incumbent_seen).meets(case.snapshot.objectives)
    cap = min(case.state.radius, _CAUTIOUS if meets else _FREE)
    furthest = min(case.state.radius, max(cap, case.space.widest_step(case.record.incumbent)))
    evidence = evidence.model_copy(update={"boldness_cap": furthest})
    advice = case.state.advice
    if advice is not None and not _allowed(case, advice.proposal, cap):
        advice = None  # it was made while there was less to lose
    if advice is not None and case.snapshot.mode == "Recommend":
        if case.snapshot.approved_decision == advice.sequence:
            return _try(case, advice.proposal, seen, evidence)
        message = f"Decision {advice.sequence} waits for approval: set spec.tuning.approvedDecision to it"
        return case.answer("Hold", "AwaitingApproval", message, evidence=evidence)
    proposal = advice.proposal if advice is not None else case.proposal
    if proposal is None or not _allowed(case, proposal, cap):
        message = "A trial may begin once there is a candidate"
        return case.with_state(advice=None, wanted_boldness=cap).answer(
            "Hold", "NoCandidate", message, evidence=evidence
        )
    if case.snapshot.mode == "Recommend":
        candidate = case.space.knobs(proposal.point, case.record.incumbent, case.next_generation)
        message = (
            f"{_words(case, candidate)} may be better than {_words(case, case.record.incumbent)}: to have it tried, "
            f"set spec.tuning.approvedDecision to {case.snapshot.sequence}"
        )
        return case.with_state(advice=Advice(sequence=case.snapshot.sequence, proposal=proposal)).answer(
            "Advise", "Candidate", message, evidence=evidence, advised=candidate
        )
    return _try(case, proposal, seen, evidence)


def _allowed(case: Case, proposal: Proposal, cap: float) -> bool:
    incumbent = case.record.incumbent
    in_reach = case.space.in_reach(proposal.point, incumbent, cap, case.state.radius)
    return in_reach and case.space.holds(proposal.point, incumbent)


def _try(case: Case, proposal: Proposal, seen: Window, evidence: Evidence) -> Answer:
    candidate = case.space.knobs(proposal.point, case.record.incumbent, case.next_generation)
    return _start(case.with_state(advice=None), candidate, proposal.number, seen, evidence)


def _start(case: Case, candidate: Knobs, number: int | None, seen: Window, evidence: Evidence) -> Answer:
    boldness = case.space.boldness(case.space.point(candidate), case.record.incumbent)
    trial = Trial(number=number, candidate=candidate, boldness=boldness, incumbent_seen=seen)
    record = case.record.model_copy(update={"candidate": candidate, "trying": True, "started_at_s": case.now_s})
    case = case.with_state(trial=trial, ledger=case.state.ledger.with_window(seen, case.now_s))
    message = (
        f"Trying {_words(case, candidate)} in place of {_words(case, case.record.incumbent)}, "
        f"which meets {seen.total.share:.1%} of {seen.total.ended:.0f} requests"
    )
    if held_back_by := binding(case.snapshot.telemetry):
        message = f"{message}; most of the others break their bound of {held_back_by.upper()}"
    if number is None:
        goal = (
            "the starting knobs" if same(candidate, case.snapshot.starting) else "what is nearer to the starting knobs"
        )
        message = f"{message}: does it still beat {goal}?"
    reason = "Confirm" if number is None else "Candidate"
    evidence = evidence.model_copy(update={"boldness": boldness})
    return case.answer("Try", reason, message, record=record, evidence=evidence)


def _close(case: Case, seen: Window, evidence: Evidence) -> Answer:
    """Confirm at the end of a search that the starting knobs are beaten; then rest."""
    starting, incumbent = case.snapshot.starting, case.record.incumbent
    settled = case.state.confirmed or same(incumbent, starting) or case.snapshot.mode != "Auto"
    back = None if settled else _way_back(case)
    if back is not None:
        return _start(case, back, None, seen, evidence.model_copy(update={"boldness_cap": case.state.radius}))
    message = f"Nothing better than {_words(case, incumbent)} is in reach: the search rests"
    # A breach may have left nothing in reach: once rested, the smallest step is worth a look again.
    radius = max(case.state.radius, case.space.smallest_step(incumbent))
    case = case.with_state(rest_until_s=case.rested_s, failures=0, tried=(), radius=radius)
    return case.answer("Hold", "SearchOver", message, evidence=evidence)


def _way_back(case: Case) -> Knobs | None:
    """Return the starting knobs or, where a breach forbids to go so far at once, what is nearest to them in reach."""
    starting, incumbent, cap = case.snapshot.starting, case.record.incumbent, case.state.radius
    if case.space.boldness(case.space.point(starting), incumbent) <= cap:
        return case.push(starting)
    return case.space.towards(starting, incumbent, cap, case.next_generation)


def _words(case: Case, knobs: Knobs) -> str:
    return case.space.describe(knobs)
