"""Log-probabilities as OpenAI's API has them."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from leeway_engine.messages import TokenLogprobs

LOWEST = -9999.0
"""Stands for a probability of 0, whose logarithm JSON cannot hold."""


class CompletionLogprobs:
    """Of /v1/completions: a list of each thing, and where in the text each token begins."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """The text begins at 0 and goes on from call to call."""
        self._tokenizer = tokenizer
        self._offset = 0

    def __call__(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Return the object for these tokens, the next ones of the answer."""
        tokens = [_text(self._tokenizer, token.token_id) for token in logprobs]
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token)
        tops = [
            {
                _text(self._tokenizer, token_id): _finite(logprob)
                for token_id, logprob in zip(token.top_ids, token.top_logprobs, strict=True)
            }
            for token in logprobs
        ]
        return {
            "tokens": tokens,
            "token_logprobs": [_finite(token.logprob) for token in logprobs],
            "top_logprobs": tops,
            "text_offset": offsets,
        }


class ChatLogprobs:
    """Of /v1/chat/completions: an object for each token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Tokens are decoded one by one."""
        self._tokenizer = tokenizer

    def __call__(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Return the object for these tokens."""
        content = [
            {
                **self._entry(token.token_id, token.logprob),
                "top_logprobs": [
                    self._entry(token_id, logprob)
                    for token_id, logprob in zip(token.top_ids, token.top_logprobs, strict=True)
                ],
            }
            for token in logprobs
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = _text(self._tokenizer, token_id)
        # A part of a character is no text, and its bytes are not known here.
        whole = list(text.encode()) if "\ufffd" not in text else None
        return {"token": text, "logprob": _finite(logprob), "bytes": whole}


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    text: str = tokenizer.decode([token_id], skip_special_tokens=False)
    return text


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
