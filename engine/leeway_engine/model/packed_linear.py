"""Linear layers whose weights lie as oneDNN's kernels read them, for bfloat16 on CPUs."""

import torch
from torch import Tensor, nn

from leeway_engine.model.row_counts import is_onednns


class PackedLinear(nn.Module):
    """A linear layer that does not reorder its weights in each call, which few rows would not pay for."""

    def __init__(self, linear: nn.Linear) -> None:
        """Copy the weights of a layer, in its type."""
        super().__init__()
        self.bias = linear.bias
        self._packed = torch.ops.mkldnn._reorder_linear_weight.default(linear.weight, None)

    def forward(self, x: Tensor) -> Tensor:
        """Return x · weightsᵀ + bias, [rows, outputs]."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._packed, self.bias, "none", [], "")
        return product


def can_pack(weight: Tensor) -> bool:
    """Whether the machine has packed kernels for the type; in float32 torch's own are as quick."""
    return weight.dtype == torch.bfloat16 and is_onednns(weight)


def pack(module: nn.Module) -> None:
    """Pack all linear layers inside, in their places."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, PackedLinear(child))
