"""With how many rows products are computed, where a kernel is made and kept for each number of rows.

oneDNN compiles one of about a megabyte in 2 ms for each shape that it meets, and keeps the last 1,024: an engine whose
iterations have from 1 to 256 rows would grow by most of a gigabyte in its first half hour.
"""

import torch
from torch import Tensor

STEP = 8
"""Least distance of two numbers: what it adds to an iteration is about 1 % of its time."""


def is_onednns(weight: Tensor) -> bool:
    """Whether products with a weight are oneDNN's: those of 16-bit types on CPUs that can."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # not typed in torch
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float16 and bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def padded_rows(rows: int) -> int:
    """Return the next number that is used: powers of 2 up to 8, multiples of 8 up to 128, then 8 in each octave."""
    if rows <= STEP:
        return 1 << (rows - 1).bit_length() if rows else 0
    step = max(STEP, 1 << (rows - 1).bit_length() - 4)
    return -(-rows // step) * step
