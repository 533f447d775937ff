"""What the API process and the engine loop tell each other. No torch, so that the API process stays light."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from leeway_engine.scheduling.request import FinishReason


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn; the values given here change nothing but temperature 1.

    Bias and penalties change the logits, temperature divides them, and of the tokens that `top_k`, `top_p` and `min_p`
    all keep one is drawn. Temperature 0 takes the most likely token instead.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """Keep that many likeliest tokens; 0 keeps all."""
    min_p: float = 0.0
    """Keep tokens at least this likely, as a share of the likeliest token's probability."""
    repetition_penalty: float = 1.0
    """Divides positive logits of the tokens in prompt and output, and multiplies negative ones."""
    presence_penalty: float = 0.0
    """Taken off the logits of the tokens in the output."""
    frequency_penalty: float = 0.0
    """Taken off for each time that a token is in the output."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these tokens."""
    logprobs: int | None = None
    """Give log-probabilities of each token and of that many likeliest ones, before bias, penalties and temperature."""
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
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be from 0 to 1, not {self.min_p}")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(f"repetition_penalty must be above 0, not {self.repetition_penalty}")
        if not (isfinite(self.presence_penalty) and isfinite(self.frequency_penalty)):
            raise ValueError("presence_penalty and frequency_penalty must be finite")
        if not all(token_id >= 0 and isfinite(bias) for token_id, bias in self.logit_bias.items()):
            raise ValueError("logit_bias must give a finite bias for token ids of 0 or more")
        if self.logprobs is not None and self.logprobs < 0:
            raise ValueError(f"logprobs must be 0 or more, not {self.logprobs}")


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
    """Only requests of the same tenant and salt share the KV of equal prompts."""
    tool_schema: str = ""
    """Revision of the tools that the prompt names; requests of another one do not share its KV either."""
    priority: int = 0
    deadline_s: float | None = None
    """Time by which the last token is due, on the clock of `arrival_s`."""
    tool_wait_s: float = 0.0
    """How long its KV is kept, once its answer is whole, for a request that goes on from it; 0 keeps none."""
    expires_s: float | None = None
    """Time after which nobody waits for it any more, on the clock of `arrival_s`; nor is its KV kept for longer."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probability of a token, and the likeliest tokens in its place with theirs, in falling order."""

    token_id: int
    logprob: float
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """New tokens of a request; a stop token is among them. With a finish reason it is the request's last event.

    A request that is given up before its first token, as it cannot meet its deadline, ends without tokens, and so does
    one whose iteration fails.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    prompt_tokens: int
    output_tokens: int
    logprobs: tuple[TokenLogprobs, ...] = ()
    """Of each of the tokens, if they were asked for."""
    cached_tokens: int = 0
    """Prompt tokens that were not computed for this request, as their keys and values were there already."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one iteration did."""

    seconds: float = 0.0
    """From its launch until its tokens are there."""
    idle_gap_s: float = 0.0
    """Time from the end of the iteration before to the launch of this one, if there was work all the while."""
    prefill_tokens: int = 0
    decode_tokens: int = 0
    preempted: int = 0
    knobs_generation: int = 0
    predicted_s: float = 0.0
    """Duration that was predicted for it; 0 before there is a prediction."""
    path: str = ""
    """How it was computed: eager, native, triton, or graph-N by a recording for N decodes; empty without tokens."""
    chunks: tuple[int, ...] = ()
    """Tokens of each of its prefills."""
    partial_prefills: int = 0
    """How many of them left a part of the prompt to later iterations."""
    queue_delays_s: tuple[float, ...] = ()
    """Of each request that it was the first one for, the time from arrival to its start."""


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
    preemptions_by_swap: int = 0
    """Those of the preemptions after which host memory kept what was computed."""
    cancels: Mapping[str, int] = field(default_factory=dict)
    """Requests that were cancelled, by the phase that they were in."""
    cancelled_tokens: int = 0
    """Tokens that had been computed for them."""
    tenant_debts: Mapping[str, float] = field(default_factory=dict)
    """What each tenant that waits was served less than the one that was served most, in weighted tokens."""
    tool_waits: int = 0
    """Ended requests whose KV is kept for those that go on from them."""
    failed_iterations: int = 0
    """Iterations whose requests ended with an error; they are not among `iterations`."""
