"""Reads the events of an OpenAI completion stream, one line at a time. Pure."""

import json
from dataclasses import dataclass

MESSAGE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What one line of a stream says."""

    has_text: bool = False
    finished: bool = False
    """The server gave a reason for finishing."""
    output_tokens: int | None = None
    """All output tokens of the request, in the event that tells."""
    error: str = ""


def read_event(line: bytes) -> StreamEvent | None:
    """The event in a line, None for lines without one. Raises ValueError for what isn't an OpenAI stream."""
    field, _, value = line.partition(b":")
    value = value.strip()
    if field != b"data" or value == b"[DONE]":
        return None
    event = json.loads(value)
    try:
        if event.get("error"):
            return StreamEvent(error=error_message(value))
        choice: dict[str, object] = next(iter(event.get("choices") or ()), {})
        return StreamEvent(
            has_text=bool(choice.get("text")),
            finished=choice.get("finish_reason") is not None,
            output_tokens=(event.get("usage") or {}).get("completion_tokens"),
        )
    except (AttributeError, TypeError) as error:
        raise ValueError(f"unexpected event {value[:MESSAGE_CHARACTERS].decode(errors='replace')}") from error


def error_message(body: bytes) -> str:
    """The message in an error of OpenAI's shape, or the beginning of whatever it is."""
    try:
        message = json.loads(body)["error"]["message"]
    except (KeyError, TypeError, ValueError):
        message = body.decode(errors="replace")
    return str(message)[:MESSAGE_CHARACTERS]
