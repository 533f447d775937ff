"""Builds the tensors of an iteration from rows and counts."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leeway_engine.batch_rows import BatchRows, Ints
from leeway_engine.model.batch import AttentionGroup, Batch


@dataclass(frozen=True, slots=True)
class Device:
    """Where and in which type the model runs, and how many query heads share a KV head."""

    name: str
    dtype: torch.dtype
    heads_per_kv_head: int

    def upload(self, array: NDArray[np.generic]) -> Tensor:
        """Copy an array to the device."""
        return torch.from_numpy(array).to(self.name, non_blocking=True)


@dataclass(frozen=True, slots=True)
class Spans:
    """The new tokens of each request: `count` of them from `start` on in its `row`."""

    row: Ints
    start: Ints
    count: Ints

    @property
    def end(self) -> Ints:
        """One past the last new token."""
        return self.start + self.count

    def take(self, members: Ints) -> "Spans":
        """Some of the spans."""
        return Spans(self.row[members], self.start[members], self.count[members])


def lay_out(rows: BatchRows, spans: Spans, sampled: Ints, device: Device) -> Batch:
    """Lay the spans one after another; a token is drawn after those at the places `sampled`."""
    ends = np.cumsum(spans.count)
    offset = ends - spans.count
    owner = np.repeat(spans.row, spans.count)
    position = np.arange(ends[-1]) - np.repeat(offset - spans.start, spans.count)
    slot = rows.blocks[owner, position // rows.block_size] * rows.block_size + position % rows.block_size
    # Padding at most doubles the work where spans of a group agree in the bits of their length and of their context.
    shape = np.frexp(spans.count)[1] * 64 + np.frexp(-(-spans.end // rows.block_size))[1]
    groups = [np.flatnonzero(shape == value) for value in np.unique(shape)]
    return Batch(
        token_ids=device.upload(rows.tokens[owner, position]),
        positions=device.upload(position),
        slots=device.upload(slot),
        groups=[_group(rows, spans.take(members), offset[members], device) for members in groups],
        sampled=device.upload(ends[sampled] - 1),
    )


def _group(rows: BatchRows, spans: Spans, offset: Ints, device: Device) -> AttentionGroup:
    length = np.arange(spans.count.max())
    within = np.minimum(length, spans.count[:, None] - 1)
    true = length < spans.count[:, None]
    queries = offset[:, None] + within
    blocks = rows.blocks[spans.row, : -(-spans.end.max() // rows.block_size)]
    seen = device.upload(np.repeat(spans.start[:, None] + within, device.heads_per_kv_head, axis=1))
    keys = torch.arange(blocks.shape[1] * rows.block_size, device=device.name)
    mask = torch.zeros((), dtype=device.dtype, device=device.name).where(keys <= seen[:, None, :, None], -torch.inf)
    return AttentionGroup(
        queries=device.upload(queries),
        outputs=device.upload(np.flatnonzero(true)),
        tokens=device.upload(queries[true]),
        blocks=device.upload(blocks.ravel()),
        mask=mask,
    )
