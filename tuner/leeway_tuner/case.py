"""A Snapshot with what is remembered, and the ways to answer it."""

from dataclasses import dataclass, replace
from typing import Any

from leeway_core.decision import Action, Decision, Evidence
from leeway_core.knobs import Knobs
from leeway_core.reading import Reading, is_lost
from leeway_core.record import Record
from leeway_core.snapshot import Snapshot

from leeway_tuner.evidence import Window
from leeway_tuner.space import Space
from leeway_tuner.state import Outcome, Proposal, State, Trial

MINIMUM_REQUESTS = 8
"""Least evidence of a window; one that has less by its end goes on."""
PATIENCE_WINDOWS = 4
"""How many windows' time a window may take to come to that."""
REST_WINDOWS = 100
"""How long a search that is over rests, before it looks whether something has changed."""
_NEARLY = 0.98
"""Scrapes come a little early or late."""

Answer = tuple[Decision, State]


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be decided on."""

    snapshot: Snapshot
    state: State
    space: Space
    proposal: Proposal | None
    exhausted: bool

    @property
    def record(self) -> Record:
        """What is on record."""
        return self.snapshot.record

    @property
    def now_s(self) -> float:
        """Time of the Snapshot, by which all windows are measured."""
        return self.snapshot.now_s

    @property
    def above(self) -> int:
        """Highest generation of knobs that any pod has."""
        return max((pod.accepted.generation for pod in self.snapshot.pods if pod.accepted), default=0)

    @property
    def next_generation(self) -> int:
        """A generation that every pod takes."""
        return max(self.record.newest_generation, self.above) + 1

    @property
    def lost(self) -> Reading | None:
        """A reading that fails, if one does."""
        telemetry, names = self.snapshot.telemetry, {each.name for each in self.snapshot.objectives}
        readings = [telemetry.attainment, telemetry.goodput_rps]
        readings += [reading for name, reading in telemetry.objectives.items() if name in names]
        return next((reading for reading in readings if is_lost(reading)), None)

    @property
    def window(self) -> Window | None:
        """What is seen of the knobs in force in their present window."""
        return Window.of(self.snapshot.telemetry)

    @property
    def unsettled_window(self) -> Window | None:
        """The same from the candidate's push on."""
        readings = self.snapshot.telemetry.unsettled
        return Window.of(readings) if readings else None

    @property
    def full_window(self) -> Window | None:
        """The same once it is evidence enough."""
        window = self.window
        if window is None or window.span_s < _NEARLY * self.snapshot.window_s or window.total.ended < MINIMUM_REQUESTS:
            return None
        return window

    @property
    def overdue(self) -> bool:
        """Whether the present window should have come to evidence long ago."""
        return self.now_s - self.record.settled_at_s > PATIENCE_WINDOWS * self.snapshot.window_s

    @property
    def rested_s(self) -> float:
        """When a search that rests from now on has rested."""
        return self.now_s + REST_WINDOWS * self.snapshot.window_s

    def with_state(self, **changes: Any) -> "Case":
        """Return the case with something else remembered."""
        return replace(self, state=self.state.model_copy(update=changes))

    def void(self, **changes: Any) -> "Case":
        """Return the case with its trial over, and nothing learned for the study."""
        return self.with_state(trial=None, **changes)

    def untried(self, trial: Trial) -> "Case":
        """Return the case with its trial over, which could not be carried out: the study learns nothing of it.

        It counts as one that found nothing better: else the same one would begin again at once, and so for ever.
        """
        known: dict[str, Any] = {
            "tried": (*self.state.tried, self.space.point(trial.candidate)),
            "failures": self.state.failures + 1,
        }
        if trial.number is None:
            known["rest_until_s"] = self.rested_s
        return self.void(**known)

    def ended(self, trial: Trial, better_by: float, **changes: Any) -> "Case":
        """Return the case with its trial over, by which the candidate was so much better than the incumbent."""
        outcome = None
        if trial.number is not None:
            outcome = Outcome(number=trial.number, score=self.state.gain + better_by)
        tried = (*self.state.tried, self.space.point(trial.candidate))
        known = {"trial": None, "outcome": outcome, "tried": tried, "incumbent_seen": trial.incumbent_seen}
        return self.with_state(**{**known, **changes})

    def back(self) -> Record:
        """Return the record with the incumbent in force and no trial."""
        return self.record.back(self.now_s, self.above)

    def push(self, knobs: Knobs) -> Knobs:
        """Return knobs under a generation that every pod takes."""
        return knobs.model_copy(update={"generation": self.next_generation})

    def answer(
        self,
        action: Action,
        reason: str,
        message: str,
        *,
        record: Record | None = None,
        evidence: Evidence | None = None,
        advised: Knobs | None = None,
    ) -> Answer:
        """Return the decision, and what to remember."""
        record = record or self.record
        turned = record.in_force.generation != self.record.in_force.generation
        seen = {"seen_s": self.now_s, "incumbent": record.incumbent, "awaited": turned or self.state.awaited}
        state = self.state.model_copy(update=seen)
        decision = Decision(
            sequence=self.snapshot.sequence,
            action=action,
            record=record,
            advised=advised,
            reason=reason,
            message=message,
            evidence=evidence or Evidence(),
        )
        return decision, state


def same(one: Knobs | None, other: Knobs | None) -> bool:
    """Tell whether knobs are the same but for their generation."""
    return one is other if one is None or other is None else one.same(other)
