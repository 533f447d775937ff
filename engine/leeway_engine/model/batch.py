"""The tensors of one iteration: the new tokens of all requests in one row."""

from dataclasses import dataclass

from torch import Tensor

from leeway_engine.model.kernels import Attention


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass of the model."""

    token_ids: Tensor
    sampled: Tensor
    """Index of the tokens after which one is drawn."""
    attention: Attention
