"""Builds the tensors of an iteration from rows and counts."""

import numpy as np
import torch

from leeway_engine.batch_rows import BatchRows
from leeway_engine.model.batch import Batch
from leeway_engine.model.kernels import Kernels
from leeway_engine.model.spans import Ints, Spans


def lay_out(rows: BatchRows, spans: Spans, sampled: Ints, kernels: Kernels, device: torch.device) -> Batch:
    """Lay the spans one after another; a token is drawn after those at the places `sampled`."""
    last = np.cumsum(spans.count)[sampled] - 1
    token_ids = rows.tokens[spans.owner, spans.position]
    return Batch(
        token_ids=torch.from_numpy(token_ids).to(device, non_blocking=True),
        sampled=torch.from_numpy(last).to(device, non_blocking=True),
        attention=kernels.attention(spans),
    )
