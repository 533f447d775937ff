"""What one iteration runs."""

from dataclasses import dataclass, field
from typing import NamedTuple

from leeway_core.pod_knobs import PodKnobs

from leeway_engine.scheduling.load import Load
from leeway_engine.scheduling.move import Move
from leeway_engine.scheduling.request import Request, State


class Chunk(NamedTuple):
    """The next prompt tokens of a request."""

    request: Request
    tokens: int


@dataclass(slots=True)
class Plan:
    """The work of one iteration, and what changed in the block tables for it."""

    knobs: PodKnobs
    block_size: int
    decodes: list[Request] = field(default_factory=list)
    """Requests that get one token each."""
    prefills: list[Chunk] = field(default_factory=list)
    admitted: list[Request] = field(default_factory=list)
    """Requests that hold blocks from this iteration on."""
    preempted: list[Request] = field(default_factory=list)
    """Requests that lost their blocks; they will be swapped in again or computed again."""
    swapped_out: list[Request] = field(default_factory=list)
    """Those of the preempted whose computed tokens go to host memory."""
    swapped_in: list[Request] = field(default_factory=list)
    """Those of the admitted whose computed tokens come from host memory."""
    rejected: list[Request] = field(default_factory=list)
    """Requests that ended before their first token, as their deadline cannot be met here."""
    grown: list[Request] = field(default_factory=list)
    """Requests, beside the admitted, that got a further block."""
    moves: list[Move] = field(default_factory=list)
    """Copies of blocks to make, in this order, before the tokens are computed."""
    load: Load = field(default_factory=Load)
    predicted_s: float = 0.0
    """Predicted duration; 0 before there is a prediction."""
    reasons: dict[Request, str] = field(default_factory=dict)
    """Why each traced request was chosen to be admitted or prefilled."""
    stood_back: dict[Request, str] = field(default_factory=dict)
    """Why each traced one of the preempted made room for another."""
    repeats: bool = False
    """Whether the next iteration would be planned the same, but for growth, ends and ends of prefills."""

    @property
    def touched(self) -> list[Request]:
        """Requests whose tokens are computed or moved in this iteration, each once."""
        computed = [*self.decodes, *(chunk.request for chunk in self.prefills)]
        return list(dict.fromkeys([*computed, *self.admitted, *self.swapped_out]))

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens in this iteration."""
        return self.load.prefill_tokens

    @property
    def tokens(self) -> int:
        """All tokens in this iteration, never more than the token budget."""
        return self.load.decodes + self.load.prefill_tokens

    @property
    def holds(self) -> int:
        """Iterations, this one included, that run this very work if no request comes, stops, or is cancelled.

        To be asked before the plan is completed. The last of them may end requests or prefills, or fill blocks.
        """
        if not self.repeats:
            return 1
        room = [len(r.blocks) * self.block_size - r.computed for r in self.decodes]
        output = [request.max_tokens - request.generated for request in self.decodes]
        prefill = [request.pending // tokens for request, tokens in self.prefills]
        return min(room + output + prefill, default=1)

    def drop_ended(self) -> None:
        """Take out the requests that have ended, or begun to wait for a tool, since the plan was made."""
        self.decodes = [request for request in self.decodes if request.state is State.DECODING]
        self.grown = [request for request in self.grown if request.state is State.DECODING]
        self.prefills = [chunk for chunk in self.prefills if chunk.request.state is State.PREFILLING]
        self.admitted = [request for request in self.admitted if request.state is State.PREFILLING]
        load = Load(len(self.decodes), sum([request.computed for request in self.decodes]))
        for request, tokens in self.prefills:
            load = load.with_chunk(tokens, request.computed)
        self.load = load
