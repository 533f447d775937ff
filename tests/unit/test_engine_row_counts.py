"""Where a kernel is kept for each number of rows, few numbers are used; padding changes no answer and no KV."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from leeway_engine.kernels.choice import choose_kernels
from leeway_engine.model.batch import Batch
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.packed_linear import can_pack
from leeway_engine.model.row_counts import padded_rows
from leeway_engine.model.spans import Spans
from leeway_engine.model.weights import load_decoder
from reference_tokens import Setting, generate, random_prompts, save_model
from torch import Tensor, nn

BLOCKS, BLOCK_SIZE = 40, 8
"""KV of the spans below: (start, new tokens)."""
SPANS = ((0, 11), (0, 1), (7, 9), (30, 1), (16, 3))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("model")
    save_model("qwen3-tied-wide-heads", folder)
    return load_decoder(folder, torch.float64)


@given(st.integers(0, 100_000))
def test_padding_is_short_and_padded_numbers_stay(rows: int) -> None:
    padded = padded_rows(rows)
    assert rows <= padded
    assert padded - rows < max(8, rows / 8)
    assert padded_rows(padded) == padded


def test_few_numbers_are_used() -> None:
    assert len({padded_rows(rows) for rows in range(1, 257)}) == 27
    assert len({padded_rows(rows) for rows in range(1, 8193)}) == 27 + 5 * 8


@pytest.mark.parametrize("mode", ["auto", "eager"])
@pytest.mark.parametrize("sampled", [(), (10,), (10, 11, 20, 21, 24)], ids=str)
def test_padding_changes_no_answer_and_no_kv(
    decoder: Decoder, mode: Literal["auto", "eager"], sampled: tuple[int, ...]
) -> None:
    kernels = choose_kernels(decoder, mode)
    start, count = np.array(SPANS).T.copy()
    spans = Spans(start, count, np.arange(len(SPANS)), np.arange(BLOCKS).reshape(len(SPANS), -1), BLOCK_SIZE)
    tokens = torch.randint(decoder.config.vocabulary, (int(count.sum()),), generator=torch.Generator().manual_seed(0))

    def forward(*, pads_rows: bool) -> tuple[Tensor, list[Tensor]]:
        decoder.pads_rows = pads_rows
        cache = KvCache(decoder.config, BLOCKS, BLOCK_SIZE, torch.float64, "cpu")
        batch = Batch(tokens, torch.tensor(sampled, dtype=torch.int64), kernels.attention(spans))
        logits = decoder(batch, cache, kernels)
        return logits, [cache.layer(layer) for layer in range(decoder.config.layers)]

    torch.testing.assert_close(forward(pads_rows=True), forward(pads_rows=False))


def test_an_engine_in_bfloat16_multiplies_with_few_numbers_of_rows(tmp_path: Path) -> None:
    if not can_pack(torch.empty(1, dtype=torch.bfloat16)):
        pytest.skip("this CPU has no bfloat16 kernels of oneDNN")
    save_model("qwen2-untied", tmp_path)
    decoder = load_decoder(tmp_path, torch.bfloat16)
    seen: set[int] = set()

    def note(_: nn.Module, inputs: tuple[Tensor]) -> None:
        seen.add(len(inputs[0]))

    for linear in (module for module in decoder.modules() if hasattr(module, "_packed")):
        linear.register_forward_pre_hook(note)
    prompts = random_prompts((1, 15, 16, 17, 33, 50), decoder.config.vocabulary, seed=1)
    generate(decoder, prompts, 20, Setting(chunk_size=13, token_budget=60))
    assert len(seen) > 3
    assert seen <= {padded_rows(rows) for rows in range(61)}
