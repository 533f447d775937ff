"""Turns tokens into text as they come."""

from collections.abc import Sequence

from tokenizers import Tokenizer

_INCOMPLETE = "\ufffd"
_LAST = 8
"""Tokens that surely hold a text's last character: it has 4 bytes at most, and a token one at least."""


class Detokenizer:
    """Text of one growing sequence of tokens; a character is held back until all its bytes are there.

    However many tokens are held back, most of them are not decoded again for each that comes.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Start with no tokens."""
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        """The last tokens whose text went out, for context, and those whose text is held back."""
        self._sent = 0
        """How many of them are context."""
        self._look_at = 0
        """How many must be held back for all of them to be decoded again."""

    def feed(self, token_ids: Sequence[int]) -> str:
        """Return the text that these tokens complete."""
        held = len(self._tokens) - self._sent
        new = [token_id for token_id in token_ids if not self._is_skipped(token_id)] if held else token_ids
        if not new:
            return ""
        self._tokens += new
        held += len(new)
        if held > _LAST and (held < self._look_at or self._ends_incomplete()):
            return ""
        text, context = self._decode()
        if text.endswith(_INCOMPLETE) or len(text) <= len(context):
            # Where the last tokens only look complete, as to decoders that take all bytes of a run for broken if one
            # is, the looks become ever rarer: together they decode some 30 times what is held back.
            self._look_at = held + held // 32
            return ""
        self._tokens = self._tokens[self._sent :]
        self._sent = len(self._tokens)
        self._look_at = 0
        return text[len(context) :]

    def flush(self) -> str:
        """Return what is held back at the end of the tokens."""
        text, context = self._decode()
        return text[len(context) :]

    def _is_skipped(self, token_id: int) -> bool:
        """Whether a token has no text whatever stands around it: a special one, or none of the tokenizer's."""
        decode = self._tokenizer.decode
        if decode([token_id]):
            return False
        return bool(decode([token_id], skip_special_tokens=False)) or self._tokenizer.id_to_token(token_id) is None

    def _ends_incomplete(self) -> bool:
        return self._tokenizer.decode(self._tokens[-_LAST:]).endswith(_INCOMPLETE)

    def _decode(self) -> tuple[str, str]:
        return self._tokenizer.decode(self._tokens), self._tokenizer.decode(self._tokens[: self._sent])
