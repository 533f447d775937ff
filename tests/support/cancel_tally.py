"""What a storm of cancels showed."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts of one border or, added up, of several."""

    border: str
    cancels: int = 0
    failures: int = 0
    """Requests that ended with an error, as an iteration was made to fail."""
    survivors: int = 0
    """Requests that ended by themselves, and were compared with what they say alone."""
    leaked_blocks: int = 0
    zombie_steps_max: int = 0
    """Most iterations launched for one request after the scheduler had heard of its end; where only totals are to be
    had, of all requests."""
    faults: list[str] = field(default_factory=list)
    """Survivors with other tokens, answers that went on, and counters that say otherwise than what happened."""
