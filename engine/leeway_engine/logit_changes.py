"""Bias and penalties: what requests change in their logits before a token is drawn."""

import numpy as np
import torch
from torch import Tensor

from leeway_engine.batch_rows import BatchRows
from leeway_engine.model.spans import Ints


def change_logits(logits: Tensor, rows: BatchRows, row: Ints, end: Ints) -> Tensor:
    """Return [requests, vocabulary] with bias and penalties, as it was where no request has any.

    `row` is each request's row, and `end` how many of its tokens are known.
    """
    penalized = (
        (rows.repetition_penalty[row] != 1) | (rows.presence_penalty[row] != 0) | (rows.frequency_penalty[row] != 0)
    )
    biased = rows.biased[row]
    if not (penalized.any() or biased.any()):
        return logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    if biased.any():
        _add_bias(logits, rows, row, np.flatnonzero(biased))
    if penalized.any():
        _penalize(logits, rows, row, end, np.flatnonzero(penalized))
    return logits


def _add_bias(logits: Tensor, rows: BatchRows, row: Ints, places: Ints) -> None:
    tables = [rows.logit_bias[number] for number in row[places].tolist()]
    place = np.repeat(places, [len(table) for table in tables])
    ids = np.array([token_id for table in tables for token_id in table], np.int64)
    bias = np.array([value for table in tables for value in table.values()], np.float32)
    at, by = (torch.from_numpy(array).to(logits.device) for array in (place * logits.shape[1] + ids, bias))
    logits.view(-1).index_add_(0, at, by.to(logits.dtype))


def _penalize(logits: Tensor, rows: BatchRows, row: Ints, end: Ints, places: Ints) -> None:
    """Penalize as CTRL (Keskar et al. 2019, section 4.1) and OpenAI's API do."""
    index = torch.from_numpy(places).to(logits.device)
    row, end = row[places], end[places]
    prompt = rows.prompt_tokens[row]
    changed = logits[index]
    known = _counts(rows, row, np.zeros_like(end), end, changed) > 0
    output = _counts(rows, row, prompt, end, changed)
    repetition, presence, frequency = (
        torch.from_numpy(values[row]).to(logits.device)[:, None]
        for values in (rows.repetition_penalty, rows.presence_penalty, rows.frequency_penalty)
    )
    changed = torch.where(known, torch.where(changed > 0, changed / repetition, changed * repetition), changed)
    logits[index] = changed - frequency * output - presence * (output > 0)


def _counts(rows: BatchRows, row: Ints, start: Ints, end: Ints, like: Tensor) -> Tensor:
    """How often each token of the vocabulary is among each row's tokens from `start` to `end`."""
    length = end - start
    owner = np.repeat(np.arange(len(row)), length)
    position = np.arange(length.sum()) + np.repeat(start - (np.cumsum(length) - length), length)
    at = torch.from_numpy(owner * like.shape[1] + rows.tokens[row[owner], position]).to(like.device)
    counts = torch.zeros(like.numel(), dtype=torch.int32, device=like.device)
    return counts.index_add_(0, at, torch.ones_like(at, dtype=torch.int32)).view(like.shape)
