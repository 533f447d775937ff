"""From a stream of tokens to pieces of text that can go out."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from leeway_engine.messages import TokenEvent, TokenLogprobs
from leeway_engine.scheduling.request import FinishReason
from leeway_engine.server.detokenizer import Detokenizer
from leeway_engine.server.stop_strings import StopStrings
from leeway_engine.server.token_stream import TokenStream


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that goes out together; the last piece has a finish reason."""

    text: str
    finish_reason: str | None
    prompt_tokens: int
    output_tokens: int
    logprobs: tuple[TokenLogprobs, ...] = ()
    """Of the tokens since the piece before, if they were asked for; a stop token has no text and is left out."""
    cached_tokens: int = 0
    """Prompt tokens whose KV another request had made."""


async def pieces(stream: TokenStream, detokenizer: Detokenizer, stops: StopStrings) -> AsyncIterator[Piece]:
    """Yield the text as soon as it is certain: whole characters, and no beginning of a stop string."""
    finished = False
    logprobs: list[TokenLogprobs] = []
    while not finished:
        text = ""
        for event in await stream.take():
            text += _advance(event, detokenizer, stops)
            logprobs += event.logprobs[:-1] if event.finish_reason is FinishReason.STOP else event.logprobs
            finished = stops.found or event.finish_reason is not None
            if finished:
                stream.whole = True
                break
        if text or finished:
            reason = "stop" if stops.found else event.finish_reason
            yield Piece(text, reason, event.prompt_tokens, event.output_tokens, tuple(logprobs), event.cached_tokens)
            logprobs.clear()


def _advance(event: TokenEvent, detokenizer: Detokenizer, stops: StopStrings) -> str:
    text = stops.feed(detokenizer.feed(event.token_ids))
    if event.finish_reason is None or stops.found:
        return text
    text += stops.feed(detokenizer.flush())
    return text if stops.found else text + stops.flush()
