"""What OpenAI's API answers to a completion, streamed or whole."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from leeway_engine.messages import TokenLogprobs
from leeway_engine.server.generation import Piece

Logprobs = Callable[[Sequence[TokenLogprobs]], dict[str, Any]]
"""Writes log-probabilities as the kind of completion has them."""

DONE = b"data: [DONE]\n\n"


def event(data: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


class Answer(ABC):
    """The answer to one request."""

    def __init__(self, prefix: str, kind: str, chunk_kind: str, model: str, logprobs: Logprobs | None) -> None:
        """Begin an answer of this model; OpenAI names ids and objects by the kind of completion."""
        self._logprobs = logprobs
        self._kind = kind
        self._chunk_kind = chunk_kind
        self._common = {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    @property
    def id(self) -> str:
        """The answer's id, unlike any other's."""
        return str(self._common["id"])

    @abstractmethod
    def chunk(self, piece: Piece) -> dict[str, Any]:
        """Return a chunk of the stream."""

    @abstractmethod
    def whole(self, text: str, last: Piece) -> dict[str, Any]:
        """Return the answer that is not streamed."""

    def usage_chunk(self, last: Piece) -> dict[str, Any]:
        """Return the chunk after the last one, with the token counts only."""
        return {**self._common, "object": self._chunk_kind, "choices": [], "usage": _usage(last)}

    def _one(self, kind: str, choice: dict[str, Any], piece: Piece) -> dict[str, Any]:
        logprobs = self._logprobs(piece.logprobs) if self._logprobs else None
        choice = {"index": 0, **choice, "logprobs": logprobs, "finish_reason": piece.finish_reason}
        return {**self._common, "object": kind, "choices": [choice]}


class CompletionAnswer(Answer):
    """Of /v1/completions."""

    def __init__(self, model: str, logprobs: Logprobs | None = None) -> None:
        """Begin an answer of this model, with log-probabilities if there is what writes them."""
        super().__init__("cmpl", "text_completion", "text_completion", model, logprobs)

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """Return a chunk of the stream."""
        return self._one(self._chunk_kind, {"text": piece.text}, piece)

    def whole(self, text: str, last: Piece) -> dict[str, Any]:
        """Return the answer that is not streamed."""
        return {**self._one(self._kind, {"text": text}, last), "usage": _usage(last)}


class ChatAnswer(Answer):
    """Of /v1/chat/completions."""

    def __init__(self, model: str, logprobs: Logprobs | None = None) -> None:
        """Begin an answer of this model, with log-probabilities if there is what writes them."""
        super().__init__("chatcmpl", "chat.completion", "chat.completion.chunk", model, logprobs)
        self._role: dict[str, str] = {"role": "assistant"}

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """Return a chunk of the stream; the first one says whose turn it is."""
        delta = {**self._role, **({"content": piece.text} if piece.text or self._role else {})}
        self._role = {}
        return self._one(self._chunk_kind, {"delta": delta}, piece)

    def whole(self, text: str, last: Piece) -> dict[str, Any]:
        """Return the answer that is not streamed."""
        choice = {"message": {"role": "assistant", "content": text}}
        return {**self._one(self._kind, choice, last), "usage": _usage(last)}


def _usage(last: Piece) -> dict[str, Any]:
    return {
        "prompt_tokens": last.prompt_tokens,
        "completion_tokens": last.output_tokens,
        "total_tokens": last.prompt_tokens + last.output_tokens,
        "prompt_tokens_details": {"cached_tokens": last.cached_tokens},
    }
