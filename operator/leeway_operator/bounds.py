"""How far Leeway may turn each knob."""

from typing import Annotated

from leeway_core.model import Model
from pydantic import Field

from leeway_operator.markers import rule, rules

NonNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Percent = Annotated[int, Field(ge=0, le=100)]


class Bounds(Model):
    """How far Leeway may turn one knob. Equal `min` and `max` fix it."""

    model_config = rules(
        rule("!has(self.max) || self.min <= self.max", "min must not be above max: lower min or raise max"),
        rule("!has(self.start) || self.start >= self.min", "start must not be below min: raise start or lower min"),
        rule(
            "!has(self.start) || !has(self.max) || self.start <= self.max",
            "start must not be above max: lower start or raise max",
        ),
    )

    min: NonNegative
    max: NonNegative | None = None
    """Highest value that Leeway may choose. Defaults to the engine's ceiling."""

    start: NonNegative | None = None
    """Value in force until Leeway finds a better one. Defaults to what common engines ship, which is the highest value
    allowed: no limit but the ceiling."""

    step: Positive


class TokenBounds(Bounds):
    """How far Leeway may turn a knob that counts tokens. Equal `min` and `max` fix it."""

    min: NonNegative = 16
    """Lowest value that Leeway may choose, in tokens."""

    step: Positive = 16
    """Grid of the search: Leeway tries `min` plus whole multiples of this many tokens."""


class SequenceBounds(Bounds):
    """How far Leeway may turn a knob that counts requests. Equal `min` and `max` fix it."""

    min: Positive = 1
    """Lowest value that Leeway may choose, in requests."""

    step: Positive = 1
    """Grid of the search: Leeway tries `min` plus whole multiples of this many requests."""


class ShareBounds(Bounds):
    """How far Leeway may turn a share of the pods. Equal `min` and `max` fix it."""

    min: Percent = 0
    """Lowest share that Leeway may choose, in percent."""

    max: Percent = 100
    """Highest share that Leeway may choose, in percent."""

    start: Percent | None = None
    """Share in force until Leeway finds a better one. Defaults to 50, or to what of `min` and `max` is nearest."""

    step: Percent = 1
    """Grid of the search: Leeway tries `min` plus whole multiples of this many percent."""


class KnobBounds(Model):
    """How far Leeway may turn each knob."""

    model_config = rules(
        rule(
            "self.tokenBudget.min >= 1",
            "tokenBudget.min must be at least 1: an engine with no budget serves nothing",
            ".tokenBudget.min",
        ),
        rule(
            "self.prefillHeavyChunk.min >= 1",
            "prefillHeavyChunk.min must be at least 1: P-heavy pods must be able to prefill",
            ".prefillHeavyChunk.min",
        ),
        rule(
            "!has(self.prefillHeavyChunk.start) || !has(self.decodeHeavyChunk.start)"
            " || self.decodeHeavyChunk.start <= self.prefillHeavyChunk.start",
            "decodeHeavyChunk.start must not be above prefillHeavyChunk.start: P-heavy pods have the larger chunks",
            ".decodeHeavyChunk.start",
        ),
        rule(
            "self.decodeHeavyChunk.min >= 1 || self.prefillHeavyPercent.min >= 1",
            "decodeHeavyChunk.min of 0 lets D-heavy pods prefill nothing, so some pods must stay P-heavy:"
            " set prefillHeavyPercent.min to 1 or more",
            ".prefillHeavyPercent.min",
        ),
    )

    token_budget: TokenBounds = Field(default_factory=TokenBounds)
    """Bounds of the token budget: most tokens, prefill and decode together, that one engine iteration schedules."""

    prefill_heavy_chunk: TokenBounds = Field(default_factory=TokenBounds)
    """Bounds of the chunk size of P-heavy pods (S_P): most prompt tokens of one request in one iteration."""

    decode_heavy_chunk: TokenBounds = Field(default_factory=TokenBounds)
    """Bounds of the chunk size of D-heavy pods (S_D). Equal to S_P makes all pods alike; with 0, D-heavy pods prefill
    one token an iteration, for disaggregation is not there yet."""

    prefill_heavy_percent: ShareBounds = Field(default_factory=ShareBounds)
    """Bounds of the share of pods that are P-heavy (stands for R_PD), rounded to whole pods."""

    running_sequences: SequenceBounds = Field(default_factory=SequenceBounds)
    """Bounds of the most requests that one pod decodes at a time."""
