"""Weights packed for a CPU's bfloat16 kernels give the products that plain ones give."""

from pathlib import Path

import pytest
import torch
from leeway_engine.model.packed_linear import PackedLinear, can_pack
from leeway_engine.model.weights import load_decoder
from reference_tokens import save_model
from torch import nn

packs = pytest.mark.skipif(
    not can_pack(torch.empty(1, dtype=torch.bfloat16)), reason="this CPU has no bfloat16 kernels of oneDNN"
)


@packs
@pytest.mark.parametrize("rows", [1, 2, 7, 16, 33, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_gives_the_plain_layers_products(rows: int, bias: bool) -> None:
    torch.manual_seed(rows)
    plain = nn.Linear(48, 80, bias=bias, dtype=torch.bfloat16).requires_grad_(False)
    x = torch.randn((rows, 48), dtype=torch.bfloat16)
    exact = x.double() @ plain.weight.double().T + (plain.bias.double() if bias else 0)
    # A bfloat16 has 8 bits, so the result is off by at most half of its last one, or the sum's rounding in float32.
    torch.testing.assert_close(PackedLinear(plain)(x).double(), exact, rtol=2**-8, atol=1e-5)


@packs
def test_matrices_are_packed_in_bfloat16_and_the_plain_ones_given_back(tmp_path: Path) -> None:
    save_model("qwen2-untied", tmp_path)
    decoder = load_decoder(tmp_path, torch.bfloat16)
    assert not [module for module in decoder.modules() if isinstance(module, nn.Linear)]
    kept = {name.rsplit(".", 1)[-1] for name, weight in decoder.named_parameters() if weight.ndim == 1}
    assert kept == {"weight", "bias"}, "norms and biases stay as they were"
    assert [name for name, weight in decoder.named_parameters() if weight.ndim == 2] == ["embedding.weight"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_types_keep_plain_layers(tmp_path: Path, dtype: torch.dtype) -> None:
    save_model("qwen2-untied", tmp_path)
    decoder = load_decoder(tmp_path, dtype)
    assert not [module for module in decoder.modules() if isinstance(module, PackedLinear)]
    assert isinstance(decoder.head, nn.Linear)
