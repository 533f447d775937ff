"""Decodes that are replayed from a recording, padded to its size, get the logits that they get without one."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from attention_reference import Shape, config
from hypothesis import given
from hypothesis import strategies as st
from leeway_engine.decode_buckets import bucket_of, bucket_sizes
from leeway_engine.decode_graphs import DecodeGraphs, record_decodes
from leeway_engine.kernels.eager import EagerAttention, EagerKernels
from leeway_engine.model.batch import Batch
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kernels import RecordableKernels
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.rope import rotary_tables
from leeway_engine.model.spans import Spans
from torch import Tensor

MODEL = config(Shape(heads=4, kv_heads=2, head_dim=12))
BLOCKS, BLOCK_SIZE, REQUESTS, BLOCKS_EACH = 60, 4, 7, 8


class ReadingKernels(EagerKernels):
    """Reads the tensors of a recording anew each time, as recorded kernels do."""

    def decodes(self, start: Tensor, blocks: Tensor, block_size: int) -> EagerAttention:
        row = np.arange(len(start))
        return self.attention(Spans(start.numpy(), np.ones_like(row), row, blocks.numpy(), block_size))


def rerun(forward: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
    """Stand in for a recording on a machine without a GPU: do it again, into the same memory."""
    logits = forward()
    return lambda: logits.copy_(forward()), logits


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    torch.manual_seed(1)
    made = Decoder(MODEL).double().requires_grad_(False)
    for weight in made.parameters():
        weight.normal_(0.0, 0.3)
    return made


@given(st.integers(1, 600), st.integers(0, 700))
def test_the_bucket_is_the_smallest_that_holds_the_decodes(most: int, decodes: int) -> None:
    sizes = bucket_sizes(most)
    assert sizes == tuple(sorted(set(sizes)))
    assert sizes[-1] == most
    bucket = bucket_of(decodes, sizes)
    assert bucket == min((size for size in sizes if size >= decodes > 0), default=None)
    assert bucket is None or bucket - decodes < max(16, decodes)


def test_padded_decodes_get_the_logits_of_plain_ones_and_touch_no_block_of_others(decoder: Decoder) -> None:
    kernels = ReadingKernels(MODEL, *(table.double() for table in rotary_tables(MODEL, MODEL.context)))
    plain, recorded = (KvCache(MODEL, BLOCKS, BLOCK_SIZE, torch.float64, "cpu") for _ in range(2))
    for layer in range(MODEL.layers):
        plain.layer(layer).normal_()
        recorded.layer(layer).copy_(plain.layer(layer))
    graphs = DecodeGraphs(decoder, kernels, recorded, (REQUESTS, BLOCKS_EACH), rerun)
    draw = np.random.default_rng(2)
    # A smaller batch after a larger one finds the larger one's rows in the buffers.
    for decodes in (7, 3, 1, 5, 2, 7, 4):
        blocks = draw.permutation(BLOCKS)[: REQUESTS * BLOCKS_EACH].reshape(REQUESTS, BLOCKS_EACH)
        row = draw.permutation(REQUESTS)[:decodes]
        start = draw.integers(0, BLOCKS_EACH * BLOCK_SIZE, decodes)
        spans = Spans(start, np.ones_like(start), row, blocks, BLOCK_SIZE)
        token_ids = draw.integers(0, MODEL.vocabulary, decodes)
        everything = Batch(torch.from_numpy(token_ids), torch.arange(decodes), kernels.attention(spans))
        bucket = graphs.bucket(spans)
        assert bucket in (1, 2, 4, 7)
        torch.testing.assert_close(
            graphs.run(bucket, token_ids, spans), decoder(everything, plain, kernels), rtol=1e-9, atol=1e-9
        )
        for layer in range(MODEL.layers):
            torch.testing.assert_close(
                recorded.layer(layer)[: BLOCKS * BLOCK_SIZE], plain.layer(layer)[: BLOCKS * BLOCK_SIZE]
            )


def test_what_is_no_batch_of_decodes_or_too_many_has_no_recording(decoder: Decoder) -> None:
    kernels = ReadingKernels(MODEL, *(table.double() for table in rotary_tables(MODEL, MODEL.context)))
    cache = KvCache(MODEL, BLOCKS, BLOCK_SIZE, torch.float64, "cpu")
    graphs = DecodeGraphs(decoder, kernels, cache, (2, BLOCKS_EACH), rerun)

    def bucket(*count: int) -> int | None:
        row = np.arange(len(count))
        return graphs.bucket(Spans(row, np.array(count), row, np.zeros((3, 8), np.int64), BLOCK_SIZE))

    assert (bucket(1), bucket(1, 1), bucket(1, 2), bucket(1, 1, 1)) == (1, 2, None, None)


def test_nothing_is_recorded_where_there_is_no_gpu(decoder: Decoder) -> None:
    kernels = ReadingKernels(MODEL, *rotary_tables(MODEL, MODEL.context))
    assert isinstance(kernels, RecordableKernels)
    cache = KvCache(MODEL, BLOCKS, BLOCK_SIZE, torch.float64, "cpu")
    assert record_decodes(decoder, kernels, cache, (REQUESTS, BLOCKS_EACH)) is None
