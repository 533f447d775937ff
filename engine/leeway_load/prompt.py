"""Prompts as token ids, so that their lengths are exact whatever the model's tokenizer."""

import random
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of prompt tokens. Segments with one key are equal as far as the shorter goes."""

    key: str
    tokens: int


class PromptWriter:
    """Writes prompts as JSON arrays of token ids drawn from a range; the same salt and keys give the same ids."""

    def __init__(self, salt: str, token_ids: range) -> None:
        """`token_ids` should hold plain tokens only: no special tokens, nothing beyond the vocabulary."""
        self._salt = salt
        # One text for each 16-bit number: writing a token is then one look-up, which keeps the sender on time.
        self._texts = [str(token_ids[number % len(token_ids)]) for number in range(1 << 16)]

    def write(self, prompt: Iterable[Segment]) -> str:
        """The prompt as a JSON array."""
        return f"[{','.join(text for segment in prompt for text in self._segment(segment))}]"

    def _segment(self, segment: Segment) -> list[str]:
        # An even count, as random bytes come in words of four: a longer draw then begins with the shorter one.
        count = segment.tokens + segment.tokens % 2
        numbers = memoryview(random.Random(f"{self._salt}/{segment.key}").randbytes(2 * count)).cast("H")  # noqa: S311
        return [self._texts[number] for number in numbers[: segment.tokens]]
