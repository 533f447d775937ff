"""A request as the scheduler sees it: counts and a state, no tokens."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from math import inf

from leeway_engine.scheduling.account import Account


class State(Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    PREEMPTED = "preempted"
    TOOL_WAIT = "tool_wait"
    """Its answer is whole, and it keeps KV for a request that goes on from it."""
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCEL = "cancel"
    ERROR = "error"
    """The iteration that it was in failed, or what follows it."""
    REJECTED = "rejected"


PHASES = ("waiting", "prefilling", "decoding", "preempted", "swapped")
"""Where a request that has not ended can be, as `Request.phase` names it."""

LEGAL_TRANSITIONS = frozenset(
    {
        (State.WAITING, State.PREFILLING),
        (State.WAITING, State.FINISHED),
        (State.PREFILLING, State.DECODING),
        (State.PREFILLING, State.PREEMPTED),
        (State.PREFILLING, State.TOOL_WAIT),
        (State.PREFILLING, State.FINISHED),
        (State.DECODING, State.PREEMPTED),
        (State.DECODING, State.TOOL_WAIT),
        (State.DECODING, State.FINISHED),
        (State.PREEMPTED, State.PREFILLING),
        (State.PREEMPTED, State.FINISHED),
        (State.TOOL_WAIT, State.FINISHED),
    }
)


class RequestRejected(Exception):  # noqa: N818 - a verdict on the request, no fault of the engine
    """The engine does not serve this request; `code` is for programs, the message for people.

    Codes of what it will never serve: duplicate_id, invalid_prompt, invalid_max_tokens, context_length_exceeded,
    kv_exceeded. Codes of what may come again after `retry_after_s` are those of Admission.
    """

    def __init__(self, code: str, message: str, retry_after_s: float | None = None) -> None:
        """`retry_after_s` is None where coming again is of no use."""
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s


@dataclass(slots=True, eq=False)
class Request:
    """Counts of one request. Its known tokens are prompt and generated ones; the first `computed` of them are in KV."""

    request_id: str
    prompt_tokens: int
    max_tokens: int
    order: int
    """Position among all arrivals: the earlier goes first and the latest is preempted first."""
    account: Account = field(default_factory=lambda: Account(""))
    """The account of its tenant."""
    arrival_s: float = 0.0
    arrival_iteration: int = 0
    """Iterations planned before it came."""
    slo_class: str = ""
    priority: int = 0
    deadline_s: float | None = None
    """Time, on the clock of `arrival_s`, by which the last token is due."""
    tool_wait_s: float = 0.0
    """How long it keeps its KV once its answer is whole; 0 keeps none."""
    expires_s: float = inf
    """Time, on the clock of `arrival_s`, from which on its KV is not kept for others either."""
    downgraded: bool = False
    """Its deadline is given up: it is served as if it had neither deadline, class nor priority."""
    traced: bool = False
    """Whether plans say why they chose it."""
    state: State = State.WAITING
    finish_reason: FinishReason | None = None
    generated: int = 0
    computed: int = 0
    cached: int = 0
    """Prompt tokens found in KV when it was first admitted, so not computed for it."""
    prefilled: int = 0
    """Tokens computed in prefills, those computed again after a preemption included."""
    reached: int = 0
    """Most known tokens that had been computed when it was preempted."""
    recomputed: int = 0
    """How many of the prefilled tokens had been computed before."""
    charged: int = 0
    """Generated tokens that its tenant was charged for."""
    unpaid: int = 0
    """Prompt tokens that its tenant was not charged for yet."""
    input_charge: float = 0.0
    """What its tenant was charged for each prompt token."""
    found: int = 0
    """Prompt tokens that were in KV when it was last looked; 0 once it was admitted, as they count as computed then."""
    reserved_blocks: int = 0
    """Blocks it may come to hold without asking again, those it holds included."""
    blocks: list[int] = field(default_factory=list)
    """KV blocks held, in the order of the tokens in them."""
    keys: list[bytes] = field(default_factory=list)
    """Keys of the full blocks of known tokens, at least of the computed ones; none where prefixes are not reused."""
    published: int = 0
    """How many of the first blocks others can find."""
    swapped: list[int] = field(default_factory=list)
    """Blocks of the host that keep the computed tokens while the request is swapped out."""
    admissions: int = 0
    """Times that it was given blocks."""
    admitted_iteration: int = 0
    """Iteration of its last admission."""
    ran_iterations: int = 0
    """Iterations from its admissions to its preemptions."""
    last_scheduled: int = 0
    """Last iteration in which it got tokens."""
    level: int = -1
    """Level in the feedback queues, 0 the highest; -1 before it joined them."""
    risen: bool = False
    """Whether waiting has brought it to the top of them since it last ran."""
    level_progress: int = 0
    """Progress after which its quantum in that level began."""
    level_since: int = -1
    """Iteration since which its waits count for a rise in the feedback queues, less what it had run before; -1 if they
    are to count from its next one."""
    token_charge: float = 0.0
    """What its tenant is charged for each token that it generates."""
    residency_charge: float = 0.0
    """What its tenant is charged for each token in KV in each iteration in which it decodes."""

    @property
    def known(self) -> int:
        """Tokens whose values are known."""
        return self.prompt_tokens + self.generated

    @property
    def pending(self) -> int:
        """Known tokens that are not in KV yet: 1 in decoding, the rest of the prefill before it."""
        return self.prompt_tokens + self.generated - self.computed

    @property
    def to_compute(self) -> int:
        """Known tokens that are neither in KV for it nor were found there."""
        return self.prompt_tokens + self.generated - self.computed - self.found

    @property
    def unreached(self) -> int:
        """Prompt tokens that were never in KV for it."""
        return max(0, self.prompt_tokens - max(self.computed, self.reached))

    @property
    def phase(self) -> str:
        """Where it is, in a word for people: its state, or `swapped` while host memory keeps what was computed."""
        return "swapped" if self.swapped else self.state.value

    @property
    def service(self) -> int:
        """Tokens computed for it so far."""
        return self.prefilled + self.generated

    @property
    def progress(self) -> int:
        """Tokens computed for it so far, each counted once."""
        return self.prefilled - self.recomputed + self.generated

    def move_to(self, state: State) -> None:
        """Change state; an illegal change is a bug of the scheduler."""
        if (self.state, state) not in LEGAL_TRANSITIONS:
            raise AssertionError(f"request {self.request_id} cannot go from {self.state.value} to {state.value}")
        self.state = state
