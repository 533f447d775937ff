"""The attention for GPUs gives what the formula gives; Triton's interpreter runs it here on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
RUN = """
import torch
from attention_reference import MIXED, SHAPES, compare_attention, config
from leeway_engine.kernels.triton_attention import TritonKernels
from leeway_engine.model.rope import rotary_tables

class Recordable(TritonKernels):
    def attention(self, spans):
        blocks = torch.from_numpy(spans.blocks[spans.row])
        return self.decodes(torch.from_numpy(spans.start), blocks, spans.block_size)

DECODES = [(0, 1), (33, 1), (600, 1)]
for name, shape in SHAPES.items():
    model = config(shape)
    # The interpreter multiplies bfloat16 matrices by their bits, so float16 stands for both.
    for dtype in (torch.float32, torch.float16):
        tables = [table.to(dtype) for table in rotary_tables(model, model.context)]
        recorded = [(Recordable, DECODES)] * (dtype == torch.float32)
        for kernels, cases in [(TritonKernels, MIXED), (TritonKernels, DECODES), *recorded]:
            compare_attention(kernels(model, *tables), model, dtype, shape.block_size, cases)
            print("right:", name, dtype, kernels, cases)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is there for Linux only")
def test_attention_is_the_formula_whether_keys_are_shared_out_or_not() -> None:
    pytest.importorskip("triton", reason="torch came without Triton, as its builds for CPUs do")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    command = (sys.executable, "-W", "ignore", "-c", RUN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right:") == 9 * (2 * 2 + 1)
