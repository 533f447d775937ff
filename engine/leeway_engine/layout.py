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


def lay_out(rows: BatchRows, row: Ints, start: Ints, count: Ints, sampled: Ints, device: Device) -> Batch:
    """Lay the tokens start .. start + count of each row one after another; `sampled` are places among the rows."""
    ends = np.cumsum(count)
    offset = ends - count
    owner = np.repeat(row, count)
    position = np.arange(ends[-1]) - np.repeat(offset - start, count)
    slot = rows.blocks[owner, position // rows.block_size] * rows.block_size + position % rows.block_size
    # Padding at most doubles the work where rows of one group agree in the bits of their length and of their context.
    blocks = -(-(start + count) // rows.block_size)
    shape = np.frexp(count)[1] * 64 + np.frexp(blocks)[1]
    members = [np.flatnonzero(shape == value) for value in np.unique(shape)]
    return Batch(
        token_ids=device.upload(rows.tokens[owner, position]),
        positions=device.upload(position),
        slots=device.upload(slot),
        groups=[_group(rows, row[m], start[m], count[m], offset[m], device) for m in members],
        sampled=device.upload(ends[sampled] - 1),
    )


def _group(rows: BatchRows, row: Ints, start: Ints, count: Ints, offset: Ints, device: Device) -> AttentionGroup:
    length = np.arange(count.max())
    within = np.minimum(length, count[:, None] - 1)
    true = length < count[:, None]
    queries = offset[:, None] + within
    blocks = rows.blocks[row, : -(-(start + count).max() // rows.block_size)]
    keys = torch.arange(blocks.shape[1] * rows.block_size, device=device.name)
    last_seen = device.upload(np.repeat(start[:, None] + within, device.heads_per_kv_head, axis=1))
    mask = torch.zeros((), dtype=device.dtype, device=device.name).where(keys <= last_seen[:, None, :, None], -torch.inf)
    return AttentionGroup(
        queries=device.upload(queries),
        outputs=device.upload(np.flatnonzero(true)),
        tokens=device.upload(queries[true]),
        blocks=device.upload(blocks.ravel()),
        mask=mask,
    )
