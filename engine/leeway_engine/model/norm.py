"""Root-mean-square normalization."""

import torch
from torch import nn


class RmsNorm(nn.Module):
    """Weights that scale a vector of unit root mean square; kernels do it."""

    def __init__(self, size: int, epsilon: float) -> None:
        """`epsilon` keeps a zero vector finite."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.epsilon = epsilon
