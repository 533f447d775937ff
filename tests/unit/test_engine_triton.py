"""The kernels for GPUs give what the formulas give; Triton's interpreter runs them here on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
ATTENTION = """
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
ROWS = """
import torch
from attention_reference import TOLERANCE, SHAPES, config, norm
from leeway_engine.kernels.eager import EagerKernels
from leeway_engine.kernels.triton_attention import TritonKernels
from leeway_engine.model.rope import rotary_tables

model = config(SHAPES["SmolLM2"])
torch.manual_seed(0)
for dtype in (torch.float32, torch.float16):
    tables = [table.to(dtype) for table in rotary_tables(model, model.context)]
    ours, torchs = TritonKernels(model, *tables), EagerKernels(model, *tables)
    for rows, size in ((1, 1), (3, 48), (2, 576), (5, 1500), (2, 4096)):
        near = dict(atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
        weights, gate_up = norm(size, dtype), torch.randn(rows, 2 * size).to(dtype) * 4
        torch.testing.assert_close(ours.gate(gate_up), torchs.gate(gate_up), **near)
        for update in (None, torch.randn(rows, size).to(dtype)):
            residuals = [torch.randn(rows, size).to(dtype)]
            residuals.append(residuals[0].clone())
            got, wanted = (
                kernels.add_and_normalize(residual, update, weights)
                for kernels, residual in zip((ours, torchs), residuals)
            )
            torch.testing.assert_close(got, wanted, **near)
            assert torch.equal(*residuals)
        print("right:", dtype, rows, size)
"""


def interpreted(script: str) -> str:
    """Run a script in which Triton interprets, which is chosen before Triton is loaded."""
    pytest.importorskip("triton", reason="torch came without Triton, as its builds for CPUs do")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    command = (sys.executable, "-W", "ignore", "-c", script)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is there for Linux only")
def test_attention_is_the_formula_whether_keys_are_shared_out_or_not() -> None:
    assert interpreted(ATTENTION).count("right:") == 9 * (2 * 2 + 1)


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is there for Linux only")
def test_norms_and_gates_are_torchs() -> None:
    assert interpreted(ROWS).count("right:") == 2 * 5
