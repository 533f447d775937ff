"""One request on its way through the API."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from leeway_engine.messages import TokenEvent
from leeway_engine.server.generation import Piece
from leeway_engine.server.metrics.request_metrics import RequestMetrics
from leeway_engine.server.token_stream import BREAKS, GenerationError

CANCELS = ("cancel", "abort", "timeout")
"""Finish reasons of requests whose tokens are in no bill."""


class RequestRecord:
    """Notes the times of a request's tokens and text, and counts once how it ends."""

    def __init__(self, metrics: RequestMetrics, arrival_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`arrival_s` is on the clock."""
        self._metrics = metrics
        self._arrival_s = arrival_s
        self._clock = clock
        self._first_s: float | None = None
        self._last_s = 0.0

    def tokens(self, event: TokenEvent) -> None:
        """Note tokens as they come from the loop, however slowly the client takes them; those of one event share."""
        now_s = self._clock()
        if self._first_s is None:
            self._first_s = now_s
        else:
            for _ in event.token_ids:
                self._metrics.itl.observe((now_s - self._last_s) / len(event.token_ids))
        self._last_s = now_s

    async def observed(self, pieces: AsyncIterator[Piece]) -> AsyncGenerator[Piece]:
        """Pass the pieces of an answer on. Who has its last one finds the request counted."""
        last: Piece | None = None
        reason: str | None = None
        try:
            async for piece in pieces:
                if last is None:
                    self._metrics.ttft.observe(self._clock() - self._arrival_s)
                last = piece
                if piece.finish_reason is not None:
                    reason = piece.finish_reason
                    self._count_completed(piece)
                    self._count(reason, piece)
                yield piece
        except Exception as error:
            reason = BREAKS.get(error.code, "rejected") if isinstance(error, GenerationError) else "error"
            self._count(reason, last)
            raise
        finally:
            if reason is None:
                self._count("cancel", last)

    def _count(self, reason: str, last: Piece | None) -> None:
        self._metrics.ended.labels(reason).inc()
        if last is not None and reason not in CANCELS:
            self._metrics.prompt_tokens.observe(last.prompt_tokens)
            self._metrics.output_tokens.observe(last.output_tokens)

    def _count_completed(self, last: Piece) -> None:
        self._metrics.duration.observe(self._clock() - self._arrival_s)
        if last.output_tokens > 1 and self._first_s is not None:
            self._metrics.tpot.observe((self._last_s - self._first_s) / (last.output_tokens - 1))
