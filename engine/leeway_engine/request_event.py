"""A line of the event log: what happened to one request."""

import msgspec


class RequestEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Counts, lengths and reasons, and nothing of what the request says or is answered."""

    time_s: float
    """Seconds since 1970: of admissions and preemptions when their iteration began, of chunks and tokens its end."""
    request_id: str
    """The id of the answer that the client gets."""
    event: str
    """arrived, admitted, chunk, first_token, preempted, swapped_out, swapped_in, resumed; and of ends: finished,
    cancelled, failed, rejected."""
    phase: str
    """One of PHASES: where the event has led it, or where it was when it ended."""
    prompt_tokens: int
    max_tokens: int
    output_tokens: int = 0
    """Generated so far."""
    computed_tokens: int = 0
    """Tokens of it in KV, those found there included."""
    remaining_tokens: int = 0
    """Tokens still to prefill before its next output token."""
    scheduled_tokens: int = 0
    """Tokens computed for it in this iteration."""
    active_decodes: int | None = None
    """Requests that decoded in this iteration; this and what follows up to the free blocks only of iterations."""
    token_budget: int | None = None
    predicted_ms: float | None = None
    """Predicted duration of this iteration; 0 before there is a prediction."""
    kv_blocks_free: int | None = None
    """Blocks that no request holds after this iteration."""
    priority_reason: str = ""
    """Why the scheduler chose it, of all that it might have chosen."""
    reason: str = ""
    """Why it ended: stop, length, error, or the code of its refusal."""
    slo_class: str = ""
    prefix: str = ""
    """Begin of the first block's key: equal for prompts that begin alike and may share their KV."""
