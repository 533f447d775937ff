"""How far each knob may be turned, with all defaults filled in."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from leeway_core.knobs import Knobs
from leeway_core.model import Model


class Range(Model):
    """Lowest and highest value of a knob; the search goes by `min` plus whole multiples of `step`."""

    min: Annotated[int, Field(ge=0)]
    max: Annotated[int, Field(ge=0)]
    step: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class KnobRanges(Model):
    """The range of each knob; no `max` is above the pods' ceilings."""

    token_budget: Range
    prefill_heavy_chunk: Range
    decode_heavy_chunk: Range
    prefill_heavy_percent: Range
    running_sequences: Range

    def hold(self, knobs: Knobs) -> bool:
        """Tell whether every knob is inside its range."""
        return all(
            getattr(self, name).min <= getattr(knobs, name) <= getattr(self, name).max
            for name in type(self).model_fields
        )
