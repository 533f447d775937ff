"""The tokens of one request on their way from the engine loop to its client."""

import asyncio

from leeway_engine.messages import TokenEvent


class GenerationError(Exception):
    """The request was refused or broke off; `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str, retry_after_s: float | None = None) -> None:
        """`code` is one of RequestRejected's, or engine_died; `retry_after_s` is None if it will always be so."""
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s


class TokenStream:
    """Tokens that wait for a client, which takes all that have come at once.

    A client that reads slowly gets several tokens in its next chunk. No more wait than the request's `max_tokens`, and
    the loop never waits for a client.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._events: list[TokenEvent] = []
        self._error: GenerationError | None = None
        self._changed = asyncio.Event()
        self.ended = False
        """Whether the loop has nothing more to say about the request."""
        self.whole = False
        """Whether its answer is whole whatever more comes, as text has come that ends it."""

    def put(self, event: TokenEvent) -> None:
        """Add what an iteration gave."""
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
