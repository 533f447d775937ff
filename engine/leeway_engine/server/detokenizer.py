"""Turns tokens into text as they come."""

from collections.abc import Sequence

from tokenizers import Tokenizer

_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Text of one growing sequence of tokens; a character is held back until all its bytes are there."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Start with no tokens."""
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        """The last tokens whose text went out, for context, and those whose text is held back."""
        self._sent = 0
        """How many of them are context."""

    def feed(self, token_ids: Sequence[int]) -> str:
        """Return the text that these tokens complete."""
        self._tokens += token_ids
        text, context = self._decode()
        if text.endswith(_INCOMPLETE) or len(text) <= len(context):
            return ""
        self._tokens = self._tokens[self._sent :]
        self._sent = len(self._tokens)
        return text[len(context) :]

    def flush(self) -> str:
        """Return what is held back at the end of the tokens."""
        text, context = self._decode()
        return text[len(context) :]

    def _decode(self) -> tuple[str, str]:
        return self._tokenizer.decode(self._tokens), self._tokenizer.decode(self._tokens[: self._sent])
