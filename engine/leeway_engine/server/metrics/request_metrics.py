"""Metrics of requests as the pod's API sees them."""

from leeway_core.buckets import TOKEN_BUCKETS

from leeway_engine.server.metrics.series import Series

FINISH_REASONS = ("stop", "length", "cancel", "abort", "timeout", "rejected", "error")
REJECTIONS = (
    "invalid",
    "model_not_found",
    "context_length_exceeded",
    "kv_exceeded",
    "tenant_requests",
    "tenant_tokens",
    "queue_delay",
    "queue_full",
    "kv_headroom",
    "queue_upstream",
    "deadline_unreachable",
    "not_ready",
)
"""Codes of the answers to what is not served; `invalid` stands for all others."""


class RequestMetrics:
    """How many requests come, what becomes of them and how long their tokens take to here."""

    def __init__(self, series: Series) -> None:
        """Make the series."""
        self.arrivals = series.counter("arrivals", "Requests for a completion that came, served or not")
        self.rejections = series.counter("rejections", "Requests that were not served, by why", "reason", REJECTIONS)
        self.ended = series.counter(
            "requests", "Requests given to the engine that ended, by how", "finish_reason", FINISH_REASONS
        )
        self.ttft = series.histogram("ttft_seconds", "Time from arrival at the pod to the first text")
        self.itl = series.histogram("itl_seconds", "Time between two output tokens of a request reaching the API")
        self.tpot = series.histogram(
            "tpot_seconds", "Of a completed request of at least 2 output tokens, the mean time between two of them"
        )
        self.duration = series.histogram(
            "request_seconds", "Of a completed request, the time from arrival to the last text"
        )
        self.prompt_tokens = series.histogram(
            "prompt_tokens", "Prompt tokens of a request that ended, but by cancel, abort or timeout", TOKEN_BUCKETS
        )
        self.output_tokens = series.histogram(
            "output_tokens", "Output tokens of a request that ended, but by cancel, abort or timeout", TOKEN_BUCKETS
        )
        self.cancel_delay = series.histogram(
            "cancel_delay_seconds",
            "Time from the API noticing that a client is gone, or ending a request, to the scheduler hearing of it",
        )

    def rejected(self, code: str) -> None:
        """Count a request that is not served, by the code of its answer."""
        self.rejections.labels(code if code in REJECTIONS else "invalid").inc()
