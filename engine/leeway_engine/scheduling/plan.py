"""What one iteration runs."""

from dataclasses import dataclass, field
from typing import NamedTuple

from leeway_core.pod_knobs import PodKnobs

from leeway_engine.scheduling.move import Move
from leeway_engine.scheduling.request import Request


class Chunk(NamedTuple):
    """The next prompt tokens of a request."""

    request: Request
    tokens: int


@dataclass(slots=True)
class Plan:
    """The work of one iteration, and what changed in the block tables for it."""

    knobs: PodKnobs
    decodes: list[Request] = field(default_factory=list)
    """Requests that get one token each."""
    prefills: list[Chunk] = field(default_factory=list)
    admitted: list[Request] = field(default_factory=list)
    """Requests that hold blocks from this iteration on."""
    preempted: list[Request] = field(default_factory=list)
    """Requests that lost their blocks; they will be swapped in again or computed again."""
    grown: list[Request] = field(default_factory=list)
    """Requests, beside the admitted, that got a further block."""
    moves: list[Move] = field(default_factory=list)
    """Copies of blocks to make, in this order, before the tokens are computed."""

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens in this iteration."""
        return sum(chunk.tokens for chunk in self.prefills)

    @property
    def tokens(self) -> int:
        """All tokens in this iteration, never more than the token budget."""
        return len(self.decodes) + self.prefill_tokens
