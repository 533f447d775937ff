"""Reads what a pod streams, without holding it up."""

from dataclasses import dataclass
from typing import Any

import msgspec

_DONE = b"[DONE]"


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None

    @property
    def has_output(self) -> bool:
        delta = self.delta
        return bool(self.text or (delta and (delta.content or delta.reasoning_content or delta.tool_calls)))


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


@dataclass(slots=True)
class EventReader:
    """Cuts a stream into whole events, so that none goes out in part, and notes what they say."""

    output: bool = False
    """Whether the events last returned carry output of the model."""
    chunks: int = 0
    """Chunks with output so far."""
    usage: int | None = None
    """Output tokens, once the stream has told."""
    done: bool = False
    """Whether the stream has come to its end."""
    failure: str | None = None
    """Code of the error that the stream has told of, empty if it has none."""
    _rest: bytes = b""

    def feed(self, data: bytes) -> bytes:
        """Return the whole events that are there with this data."""
        whole, separator, self._rest = (self._rest + data).rpartition(b"\n\n")
        self.output = False
        for line in whole.split(b"\n"):
            if line.startswith(b"data:"):
                self._read(line[5:].strip())
        return whole + separator

    def _read(self, data: bytes) -> None:
        if data == _DONE:
            self.done = True
            return
        try:
            chunk = _decode(data)
        except msgspec.DecodeError:
            return
        if chunk.error is not None and self.failure is None:
            code = chunk.error.get("code") if isinstance(chunk.error, dict) else None
            self.failure = code if isinstance(code, str) else ""
        if any(choice.has_output for choice in chunk.choices):
            self.output = True
            self.chunks += 1
        self.usage = output_tokens(chunk) or self.usage


def output_tokens(chunk: _Chunk) -> int | None:
    """Return the output tokens that a chunk or a whole response tells."""
    return chunk.usage.completion_tokens if chunk.usage else None


def tokens_of_response(body: bytes) -> int | None:
    """Return the output tokens that the body of a response tells, if it does."""
    try:
        return output_tokens(_decode(body))
    except msgspec.DecodeError:
        return None
