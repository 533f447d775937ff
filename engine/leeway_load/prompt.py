"""Prompts as token ids, so that their lengths are exact whatever the model's tokenizer."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

HEAD_TOKENS = 4
POOL_TOKENS = 1 << 16


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of prompt tokens. Segments with one key are equal as far as the shorter goes."""

    key: str
    tokens: int


class PromptWriter:
    """Writes prompts as JSON arrays of token ids drawn from a range; the same salt and keys give the same ids.

    A segment is a few tokens of its own, which tell it from all others, and then a stretch of one pool of random
    tokens that was written in advance: writing tokens one by one would keep the sender from sending on time.
    """

    def __init__(self, salt: str, token_ids: range) -> None:
        """`token_ids` should hold plain tokens only: no special tokens, nothing beyond the vocabulary."""
        self._salt = salt
        self._token_ids = token_ids
        self._width = len(str(token_ids[-1])) + 1
        self._pool = self._written(random.Random(salt), POOL_TOKENS)  # noqa: S311 - no secret

    def write(self, prompt: Iterable[Segment]) -> bytes:
        """The prompt as a JSON array."""
        return b"[" + b"".join(map(self._segment, prompt))[:-1] + b"]"

    def _segment(self, segment: Segment) -> bytes:
        source = random.Random(f"{self._salt}/{segment.key}")  # noqa: S311 - no secret
        head = self._written(source, HEAD_TOKENS)
        start = source.randrange(POOL_TOKENS)
        end = start + segment.tokens
        stretch = (self._pool * (end // POOL_TOKENS + 1))[start * self._width : end * self._width]
        return (head + stretch)[: segment.tokens * self._width]

    def _written(self, source: random.Random, tokens: int) -> bytes:
        """Tokens in equal widths, each with its comma; JSON allows the blanks."""
        return b"".join(b"%*d," % (self._width - 1, token) for token in source.choices(self._token_ids, k=tokens))
