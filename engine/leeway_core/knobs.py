"""The settings of an engine that Leeway turns while it serves."""

from typing import Annotated

from pydantic import Field

from leeway_core.model import Model


class Knobs(Model):
    """All live settings together, with a generation that only grows."""

    generation: Annotated[int, Field(ge=1)]
    """Number of this set of knobs; the next one carries a higher number."""

    token_budget: Annotated[int, Field(ge=1)]
    """Most tokens, prefill and decode together, that one engine iteration schedules."""

    prefill_heavy_chunk: Annotated[int, Field(ge=1)]
    """Chunk size of P-heavy pods (S_P): most prompt tokens of one request in one iteration."""

    decode_heavy_chunk: Annotated[int, Field(ge=0)]
    """Chunk size of D-heavy pods (S_D). Equal to S_P it is aggregation; 0 is disaggregation."""

    prefill_heavy_percent: Annotated[int, Field(ge=0, le=100)]
    """Share of the pods that are P-heavy, rounded to whole pods; it stands for R_PD, P-heavy to D-heavy pods."""

    running_sequences: Annotated[int, Field(ge=1)]
    """Most requests that one pod decodes at a time."""

    def same(self, other: "Knobs") -> bool:
        """Tell whether other knobs are the same but for their generation."""
        return self.model_copy(update={"generation": other.generation}) == other
