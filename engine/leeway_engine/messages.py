"""What the API process and the engine loop tell each other. No torch, so that the API process stays light."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from leeway_engine.scheduling.request import FinishReason


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 keep the whole vocabulary."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    """Equal seeds give equal tokens, whatever else is in the batch; None draws a fresh seed."""

    def __post_init__(self) -> None:
        """Refuse values that no distribution can be made of."""
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 or more, not {self.top_k}")


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt to continue by at most `max_tokens` tokens, less if one of `stop_token_ids` comes first."""

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop_token_ids: frozenset[int] = frozenset()
    arrival_s: float = 0.0
    """Time of arrival on the engine's clock, in seconds."""
    tenant: str = ""
    slo_class: str = ""
    cache_salt: str = ""
    """Only requests of the same salt share the KV of equal prompts."""
    priority: int = 0
    deadline_s: float | None = None
    """Time by which the last token is due, on the clock of `arrival_s`."""


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """New tokens of a request; a stop token is among them. With a finish reason it is the request's last event.

    A request that is given up before its first token, as it cannot meet its deadline, ends without tokens.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that were not computed for this request, as their keys and values were there already."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one iteration did."""

    seconds: float = 0.0
    idle_gap_s: float = 0.0
    """Time from the end of the iteration before, if that left work to do."""
    prefill_tokens: int = 0
    decode_tokens: int = 0
    preempted: int = 0
    knobs_generation: int = 0
    predicted_s: float = 0.0
    """Duration that was predicted for it; 0 before there is a prediction."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A reading of the engine for its metrics; totals only grow."""

    running: int
    waiting: int
    waiting_tokens: int
    kv_blocks_free: int
    """Blocks that no request holds, `kv_blocks_cached` among them."""
    kv_blocks_total: int
    iterations: int
    prefill_tokens: int
    decode_tokens: int
    preemptions: int
    last: Iteration = field(default_factory=Iteration)
    kv_blocks_cached: int = 0
    """Blocks that no request holds, with tokens in them that may be found again."""
    prefix_queried_tokens: int = 0
    """Prompt tokens of the requests admitted so far."""
    prefix_hit_tokens: int = 0
    """How many of them were found computed."""
    swapped_out_blocks: int = 0
    swapped_in_blocks: int = 0
    swap_blocks_used: int = 0
    """Blocks of host memory that keep the tokens of preempted requests."""
