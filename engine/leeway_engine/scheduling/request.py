"""A request as the scheduler sees it: counts and a state, no tokens."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum


class State(Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCEL = "cancel"


LEGAL_TRANSITIONS = frozenset(
    {
        (State.WAITING, State.PREFILLING),
        (State.WAITING, State.FINISHED),
        (State.PREFILLING, State.DECODING),
        (State.PREFILLING, State.PREEMPTED),
        (State.PREFILLING, State.FINISHED),
        (State.DECODING, State.PREEMPTED),
        (State.DECODING, State.FINISHED),
        (State.PREEMPTED, State.PREFILLING),
        (State.PREEMPTED, State.FINISHED),
    }
)


class RequestRejected(Exception):  # noqa: N818 - a verdict on the request, no fault of the engine
    """The engine will never serve this request; `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        """`code` is one of duplicate_id, invalid_prompt, invalid_max_tokens, context_length_exceeded, kv_exceeded."""
        super().__init__(message)
        self.code = code


@dataclass(slots=True, eq=False)
class Request:
    """Counts of one request. Its known tokens are prompt and generated ones; the first `computed` of them are in KV."""

    request_id: str
    prompt_tokens: int
    max_tokens: int
    order: int
    """Position among all arrivals: the earlier goes first and the latest is preempted first."""
    slo_class: str = ""
    state: State = State.WAITING
    finish_reason: FinishReason | None = None
    generated: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    """KV blocks held, in the order of the tokens in them."""
    keys: list[bytes] = field(default_factory=list)
    """Keys of the full blocks of known tokens, at least of the computed ones; none where prefixes are not reused."""
    published: int = 0
    """How many of the first blocks others can find."""
    swapped: list[int] = field(default_factory=list)
    """Blocks of the host that keep the computed tokens while the request is swapped out."""
    reserved: int = 0
    """Blocks that a running request is expected to need beyond those it holds, at least one."""
    admissions: int = 0
    """Times that it was given blocks."""
    cached: int = 0
    """Prompt tokens that were found computed when the request was first admitted."""
    last_turn: int = 0
    """Last iteration in which decodes had to take turns and this one got its token."""

    @property
    def known(self) -> int:
        """Tokens whose values are known."""
        return self.prompt_tokens + self.generated

    @property
    def pending(self) -> int:
        """Known tokens that are not in KV yet: 1 in decoding, the rest of the prefill before it."""
        return self.prompt_tokens + self.generated - self.computed

    def move_to(self, state: State) -> None:
        """Change state; an illegal change is a bug of the scheduler."""
        if (self.state, state) not in LEGAL_TRANSITIONS:
            raise AssertionError(f"request {self.request_id} cannot go from {self.state.value} to {state.value}")
        self.state = state
