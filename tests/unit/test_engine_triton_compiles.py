"""Every Triton kernel compiles for GPUs as the decoder launches it; no GPU is needed for that."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_reference import MIXED, SHAPES, Shape, compare_attention, config, norm
from leeway_engine.model.rope import rotary_tables

triton = pytest.importorskip("triton", reason="torch came without Triton, as its builds for CPUs do")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Triton is there for Linux only"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]

NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.int64: "i64"}


def compiled(kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any], capability: int) -> str:
    """Compile a launch's kernel for a GPU of this compute capability; returns its machine code's assembly."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options = {name: named.pop(name) for name in ("num_warps",) if name in named}
    values = dict(zip((parameter.name for parameter in kernel.params), arguments, strict=False)) | named
    constants = {parameter.name: values[parameter.name] for parameter in kernel.params if parameter.is_constexpr}
    signature = {name: "constexpr" if name in constants else of_type(value) for name, value in values.items()}
    source = ASTSource(kernel, signature=signature, constexprs=constants)
    assembly: str = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]
    return assembly


def of_type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{NAMES[value.dtype]}"
    return "fp32" if isinstance(value, float) else "i32"


@pytest.mark.parametrize(
    ("dtype", "shape", "capability"),
    [(torch.bfloat16, Shape(), 90), (torch.float16, SHAPES["norms"], 80), (torch.float32, Shape(), 80)],
    ids=["bfloat16", "float16 and norms", "float32"],
)
def test_each_launch_compiles(
    dtype: torch.dtype, shape: Shape, capability: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from leeway_engine.kernels.triton_attention import TritonKernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launches = []

    def run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> None:
        launches.append((kernel, arguments, named))

    monkeypatch.setattr(triton.runtime.JITFunction, "run", run)
    model = config(shape)
    kernels = TritonKernels(model, *(table.to(dtype) for table in rotary_tables(model, model.context)))
    for cases in (MIXED, [(33, 1), (600, 1)]):
        with pytest.raises(AssertionError):  # nothing was computed
            compare_attention(kernels, model, dtype, shape.block_size, cases)
    residual = torch.zeros(3, model.hidden, dtype=dtype)
    for update in (None, residual):
        kernels.add_and_normalize(residual, update, norm(model.hidden, dtype))
    kernels.gate(torch.zeros(3, 2 * model.intermediate, dtype=dtype))
    kinds = [kernel.fn.__name__ for kernel, _, _ in launches]
    assert sorted(set(kinds)) == ["_add_and_normalize", "_attend", "_gate", "_join", "_turn_and_keep"]
    for kernel, arguments, named in launches:
        assert f"sm_{capability}" in compiled(kernel, arguments, dict(named), capability)
