"""A running trial: windows of the candidate and of the incumbent alternate until one of them is the better."""

from leeway_core.decision import Evidence
from leeway_core.record import Record

from leeway_tuner.case import Answer, Case, same
from leeway_tuner.evidence import RISK, Difference, Window, breach, numbers, score
from leeway_tuner.state import Trial

PAIRS, MOST_PAIRS = 4, 8
"""After so many windows a candidate must look promising, and after so many have won."""
_PROMISING = 0.5
"""A mean of so much of its margin is worth more windows."""
_WORTHWHILE = 0.02
"""A smaller gain of score is not looked for."""
_SILENT_WINDOWS = 2
"""For so long too few requests may end to judge by, before it matters why."""
_SHRINK, _GROW = 0.5, 1.5
_CONFIRMED = "The incumbent beats the starting knobs, or what is nearer to them"


def go_on(case: Case, trial: Trial) -> Answer:
    """Take the next step of a trial."""
    return _watch(case, trial) if case.record.trying else _compare(case, trial)


def _watch(case: Case, trial: Trial) -> Answer:
    """The candidate is in force: back at once if it does harm, else back when its window is full."""
    if found := breach_by_now(case, trial):
        return found
    now = case.window
    seen = now.plus(trial.candidate_seen) if now else trial.candidate_seen
    evidence = _evidence(trial, seen)
    if case.full_window is None or now is None:
        if now is None and _is_silent(case):
            return _doubt(case, trial, evidence)
        if case.overdue:
            return _void(case, evidence)
        return case.answer("Hold", "MeasuringCandidate", "The candidate is measured", evidence=evidence)
    ledger = case.state.ledger.with_window(now, case.now_s, instead_of=trial.incumbent_seen)
    trial = trial.model_copy(update={"candidate_seen": seen, "pairs": trial.pairs + 1})
    case = case.with_state(ledger=ledger, trial=trial)
    if seen is not None and _is_hopeless(trial, score(seen, trial.incumbent_seen)):
        return _lost(case, trial, score(seen, trial.incumbent_seen))
    message = "The candidate has been measured: the incumbent's turn, to compare"
    return case.answer("RollBack", "Compare", message, record=_incumbents_turn(case), evidence=_evidence(trial, seen))


def _incumbents_turn(case: Case) -> Record:
    incumbent = case.push(case.record.incumbent)
    return case.record.model_copy(update={"incumbent": incumbent, "trying": False, "started_at_s": case.now_s})


def _is_silent(case: Case) -> bool:
    return case.now_s - case.record.settled_at_s > _SILENT_WINDOWS * case.snapshot.window_s


def _doubt(case: Case, trial: Trial, evidence: Evidence) -> Answer:
    """Go back at once: the candidate holds requests up, or nobody sends any. What is in hand now will tell."""
    case = case.with_state(trial=trial.model_copy(update={"starved": True}))
    message = "Under the candidate hardly any request ends: the incumbent's turn, to see whether there are any"
    return case.answer("RollBack", "Starved", message, record=_incumbents_turn(case), evidence=evidence)


def breach_by_now(case: Case, trial: Trial) -> Answer | None:
    """Look for a breach in what has settled, and in all since the push, which shows it up to a settling time sooner.

    Which requests began under the candidate no counter tells. Those that began before fare as the incumbent's do: they
    can hide a breach for a while, and make none. Scores they would draw towards 0, so these are of what has settled.
    """
    for measured in filter(None, (case.window, case.unsettled_window)):
        seen = measured.plus(trial.candidate_seen)
        objective = breach(seen, trial.incumbent_seen, case.snapshot.objectives)
        if objective is not None:
            ledger = case.state.ledger.with_window(measured, case.now_s, instead_of=trial.incumbent_seen)
            gain = score(seen, trial.incumbent_seen).mean
            return _breached(case.with_state(ledger=ledger), trial, gain, _evidence(trial, seen), objective)
    return None


def _compare(case: Case, trial: Trial) -> Answer:
    """The incumbent is in force again: when its window is full, decide or go round once more."""
    now, seen, before = case.full_window, trial.candidate_seen, trial.incumbent_seen
    if now is None:
        if case.overdue or (trial.starved and _is_silent(case)):
            return _void(case, _evidence(trial, seen))
        return case.answer("Hold", "MeasuringIncumbent", "The incumbent is measured", evidence=_evidence(trial, seen))
    trial = trial.model_copy(update={"incumbent_seen": before.plus(now)})
    case = case.with_state(trial=trial, ledger=case.state.ledger.with_window(now, case.now_s))
    worse = breach(seen, trial.incumbent_seen, case.snapshot.objectives) if seen else None
    if seen is not None and worse is not None:
        return _breached(case, trial, score(seen, trial.incumbent_seen).mean, _evidence(trial, seen), worse)
    if seen is None or trial.starved:
        return _starved(case, trial, now, before)
    return _judge(case, trial, seen)


def _judge(case: Case, trial: Trial, seen: Window) -> Answer:
    found, evidence = score(seen, trial.incumbent_seen), _evidence(trial, seen)
    if found.low() > 0:
        return _won(case, trial, found, evidence)
    overspent = case.state.ledger.overspent(case.snapshot.objectives, case.snapshot.exploration_budget_percent)
    if trial.pairs >= MOST_PAIRS or _is_hopeless(trial, found) or overspent is not None:
        return _lost(case, trial, found)
    record = case.record.model_copy(
        update={"candidate": case.push(trial.candidate), "trying": True, "started_at_s": case.now_s}
    )
    message = f"{found.mean:+.3f} ± {found.margin(RISK):.3f} is not decided yet: the candidate once more"
    return case.answer("Try", "Compare", message, record=record, evidence=evidence)


def _starved(case: Case, trial: Trial, now: Window, before: Window) -> Answer:
    """There are requests again: those that the candidate held up end late, those that nobody had sent do not."""
    evidence = _evidence(trial, trial.candidate_seen)
    if breach(now, before, case.snapshot.objectives) is not None:
        message = "Under the candidate hardly any request ended, and those that waited for it were late"
        return _harmful(case, trial, -before.total.share, evidence, reason="Starved", message=message)
    message = "Under the candidate hardly any request ended, and none was late for it: the trial is void"
    return case.untried(trial).answer("RollBack", "TooFewSamples", message, record=case.back(), evidence=evidence)


def _won(case: Case, trial: Trial, found: Difference, evidence: Evidence) -> Answer:
    record = case.record.only(case.push(trial.candidate), case.now_s)
    words = case.space.describe(trial.candidate)
    if same(trial.candidate, case.snapshot.starting):
        case = case.ended(trial, found.mean, confirmed=True, gain=0.0, failures=0, incumbent_seen=trial.candidate_seen)
        message = f"The starting knobs are better than the incumbent: {words}"
        return case.answer("Restore", "BetterStart", message, record=record, evidence=evidence)
    gain, seen = case.state.gain + found.mean, trial.candidate_seen
    case = case.ended(trial, found.mean, gain=gain, failures=0, confirmed=False, incumbent_seen=seen)
    message = f"{words} is better by {found.mean:.3f} (at least {found.low():.3f}): it is the incumbent now"
    return case.answer("Promote", "Better", message, record=record, evidence=evidence)


def _lost(case: Case, trial: Trial, found: Difference) -> Answer:
    """Keep the incumbent, but for one that did not beat the starting knobs beyond noise."""
    evidence = _evidence(trial, trial.candidate_seen)
    radius = min(1.0, case.state.radius * _GROW)
    if trial.number is None:
        if found.high() < 0:
            case = case.ended(trial, found.mean, confirmed=True)
            return case.answer("RollBack", "Confirmed", _CONFIRMED, record=case.back(), evidence=evidence)
        if not same(trial.candidate, case.snapshot.starting):
            case = case.ended(trial, found.mean, radius=radius)
            message = "The incumbent does not beat what is nearer to the starting knobs beyond noise: further that way"
            return case.answer("RollBack", "NotBeyondNoise", message, record=case.back(), evidence=evidence)
        record = case.record.only(case.push(trial.candidate), case.now_s)
        case = case.ended(trial, found.mean, confirmed=True, gain=0.0, incumbent_seen=trial.candidate_seen)
        message = "The incumbent does not beat the starting knobs beyond noise: they are in force again"
        return case.answer("Restore", "NotBeyondNoise", message, record=record, evidence=evidence)
    case = case.ended(trial, found.mean, failures=case.state.failures + 1, radius=radius)
    message = f"The candidate is not better beyond noise ({found.mean:+.3f}): the incumbent stays"
    return case.answer("RollBack", "NotBetter", message, record=case.back(), evidence=evidence)


def _breached(case: Case, trial: Trial, gain: float, evidence: Evidence, objective: str) -> Answer:
    message = f"Objective {objective} is missed and fares worse than under the incumbent, beyond chance"
    return _harmful(case, trial, gain, evidence, reason="Breach", message=message)


def _harmful(case: Case, trial: Trial, gain: float, evidence: Evidence, *, reason: str, message: str) -> Answer:
    """Keep the incumbent; what comes next must be less bold, but for the smallest step that there is."""
    smallest = case.space.smallest_step(case.record.incumbent)
    radius = min(trial.boldness, max(_SHRINK * trial.boldness, smallest))
    if trial.number is None:
        case = case.ended(trial, gain, confirmed=True, radius=radius)
        message = f"{_CONFIRMED}. {message}"
    else:
        case = case.ended(trial, gain, failures=case.state.failures + 1, radius=radius)
    message = f"{message}: the incumbent is in force"
    return case.answer("RollBack", reason, message, record=case.back(), evidence=evidence)


def _void(case: Case, evidence: Evidence) -> Answer:
    message = "The trial came to too little evidence in time: it is void, and the incumbent stays"
    return case.void().answer("RollBack", "TooFewSamples", message, record=case.back(), evidence=evidence)


def _is_hopeless(trial: Trial, found: Difference) -> bool:
    """Tell whether more windows are not worth their cost; to confirm the incumbent takes certainty."""
    if trial.number is None:
        return found.high() < 0
    if trial.pairs >= PAIRS and found.mean < _PROMISING * found.margin(RISK):
        return True
    return found.mean <= 0 or found.high() < _WORTHWHILE


def _evidence(trial: Trial, seen: Window | None) -> Evidence:
    known = numbers(seen, trial.incumbent_seen)
    return known.model_copy(update={"pairs": trial.pairs, "boldness": trial.boldness})
