"""The tokens of one request on their way from the engine loop to its client."""

import asyncio
from collections.abc import Callable, Mapping

from leeway_engine.messages import TokenEvent

BREAKS: Mapping[str, str] = {
    "engine_died": "error",
    "engine_failed": "error",
    "timed_out": "timeout",
    "aborted": "abort",
}
"""Codes of requests that were taken and then broke off, and the finish reasons that they count as."""


class GenerationError(Exception):
    """The request was refused or broke off; `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str, retry_after_s: float | None = None) -> None:
        """`code` is one of RequestRejected's, or of BREAKS; `retry_after_s` is None if it will always be so."""
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s


class TokenStream:
    """Tokens that wait for a client, which takes all that have come at once.

    A client that reads slowly gets several tokens in its next chunk. No more wait than the request's `max_tokens`, and
    the loop never waits for a client.
    """

    def __init__(self, on_tokens: Callable[[TokenEvent], None] | None = None, prompt_tokens: int = 0) -> None:
        """Start empty, for a prompt of so many tokens; `on_tokens` is told of tokens as they come."""
        self.prompt_tokens = prompt_tokens
        self.output_tokens = 0
        """Tokens that came so far."""
        self._events: list[TokenEvent] = []
        self._error: GenerationError | None = None
        self._changed = asyncio.Event()
        self.ended = False
        """Whether the loop has nothing more to say about the request."""
        self.whole = False
        """Whether its answer is whole whatever more comes, as text has come that ends it."""
        self._on_tokens = on_tokens

    def put(self, event: TokenEvent) -> None:
        """Add what an iteration gave, unless the stream has broken off already."""
        if self._error is not None:
            return
        self.output_tokens += len(event.token_ids)
        if self._on_tokens is not None:
            self._on_tokens(event)
        self._events.append(event)
        self.ended = event.finish_reason is not None
        self._changed.set()

    def fail(self, error: GenerationError) -> None:
        """End the stream with an error, after what it already holds."""
        self._error = error
        self.ended = True
        self._changed.set()

    async def take(self) -> list[TokenEvent]:
        """Wait for tokens and return all that are there; raises GenerationError once the stream has broken off."""
        await self._changed.wait()
        if not self._events and self._error is not None:
            raise self._error
        events, self._events = self._events, []
        if self._error is None:
            self._changed.clear()
        return events
