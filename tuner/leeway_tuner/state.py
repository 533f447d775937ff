"""What the tuner remembers of a profile between two Snapshots."""

from leeway_core.knobs import Knobs
from leeway_core.model import Model
from pydantic import Field

from leeway_tuner.evidence import Window
from leeway_tuner.ledger import Ledger
from leeway_tuner.space import Point


class Proposal(Model):
    """A point that the study wants to see tried."""

    number: int
    """Of the trial in the study."""
    point: Point


class Trial(Model):
    """A candidate on its way: its windows and the incumbent's alternate."""

    number: int | None
    """Of the trial in the study; None when the starting knobs are tried again to confirm that they are beaten."""
    candidate: Knobs
    boldness: float
    incumbent_seen: Window
    candidate_seen: Window | None = None
    pairs: int = 0
    starved: bool = False
    """Whether hardly a request ended under the candidate: the incumbent's next window tells whether it held them up."""


class Outcome(Model):
    """The end of a trial that the study is to be told."""

    number: int
    score: float


class Advice(Model):
    """A candidate that waits for approval."""

    sequence: int
    proposal: Proposal


class State(Model):
    """All of it; the record of the profile, not this, tells which knobs are in force."""

    key: str = ""
    """Names the study: changes with the search space, the objectives and the policies."""
    incumbent: Knobs | None = None
    gain: float = 0.0
    """By how much the incumbent is better than the starting knobs."""
    radius: float = 1.0
    """How bold trials have proved to be safe; after a breach half of how bold that was, or the smallest step."""
    trial: Trial | None = None
    advice: Advice | None = None
    incumbent_seen: Window | None = None
    """What the last trial saw of the incumbent, which one window alone tells little of."""
    tried: tuple[Point, ...] = ()
    failures: int = 0
    """Trials in a row that found nothing better."""
    confirmed: bool = True
    """Whether the incumbent is the starting knobs or has beaten them again when the search was over."""
    rest_until_s: float = 0.0
    disturbed: bool = False
    awaited: bool = False
    """Whether knobs were turned that not every pod has been seen to enforce yet."""
    seen_s: float = 0.0
    """Time of the last Snapshot."""
    ledger: Ledger = Field(default_factory=Ledger)
    outcome: Outcome | None = None
    """Set when a trial has just ended: the study is to be told."""
    wanted_boldness: float | None = None
    """Set when a trial could begin and no proposal is there: how bold it may be, but for steps to
    the next value of a knob, which only `radius` limits."""
