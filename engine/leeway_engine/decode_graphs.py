"""Recorded forward passes of decodes, for GPUs: one call replays all kernels of a batch size."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leeway_engine.decode_buckets import bucket_of, bucket_sizes
from leeway_engine.model.batch import Batch
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kernels import Kernels, RecordableKernels
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.spans import Ints, Spans

logger = logging.getLogger(__name__)

Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], object], Tensor]]
"""Records what a function does on the device; returns what repeats that, and the tensor that then has its result."""


@dataclass(frozen=True, slots=True)
class _Recording:
    """A forward pass of one batch size, and the tensors that it reads and writes each time."""

    token_ids: Tensor
    start: Tensor
    blocks: Tensor
    logits: Tensor
    replay: Callable[[], object]


class DecodeGraphs:
    """A recording for each bucket of decodes; smaller batches are padded with requests that nobody reads."""

    def __init__(
        self, decoder: Decoder, kernels: RecordableKernels, cache: KvCache, shape: tuple[int, int], record: Record
    ) -> None:
        """Record all buckets up to a `shape` of (decodes, KV blocks of each)."""
        decodes, blocks = shape
        self._decoder = decoder
        self._kernels = kernels
        self._cache = cache
        self._sizes = bucket_sizes(decodes)
        # The largest first, as the smaller ones find room in its memory.
        self._recordings = {size: self._recording(size, blocks, record) for size in reversed(self._sizes)}

    def bucket(self, spans: Spans) -> int | None:
        """Return the size of the recording for these spans, or None where they are not decodes alone or too many."""
        return bucket_of(len(spans.count), self._sizes) if spans.count.max() == 1 else None

    @torch.inference_mode()
    def run(self, bucket: int, token_ids: Ints, spans: Spans) -> Tensor:
        """Return the logits after each token, [spans, vocabulary]; they stay until the next run."""
        recording, decodes = self._recordings[bucket], len(token_ids)
        more, used = bucket - decodes, -(-spans.end.max() // spans.block_size)
        blocks = np.pad(spans.blocks[spans.row, :used], ((0, more), (0, 0)), constant_values=self._cache.padding_block)
        recording.token_ids.copy_(torch.from_numpy(np.pad(token_ids, (0, more))))
        recording.start.copy_(torch.from_numpy(np.pad(spans.start, (0, more))))
        recording.blocks[:, :used].copy_(torch.from_numpy(blocks))
        recording.replay()
        return recording.logits[:decodes]

    @torch.inference_mode()
    def _recording(self, size: int, blocks: int, record: Record) -> _Recording:
        device, cache = self._decoder.embedding.weight.device, self._cache
        token_ids, start = (torch.zeros(size, dtype=torch.int64, device=device) for _ in range(2))
        table = torch.full((size, blocks), cache.padding_block, device=device)
        sampled = torch.arange(size, device=device)

        def forward() -> Tensor:
            attention = self._kernels.decodes(start, table, cache.block_size)
            logits: Tensor = self._decoder(Batch(token_ids, sampled, attention), cache, self._kernels)
            return logits

        replay, logits = record(forward)
        return _Recording(token_ids, start, table, logits, replay)


def record_decodes(decoder: Decoder, kernels: Kernels, cache: KvCache, shape: tuple[int, int]) -> DecodeGraphs | None:
    """Record up to a `shape` of (decodes, KV blocks of each) on a GPU, if the kernels allow it; None elsewhere."""
    if decoder.embedding.weight.device.type != "cuda" or not isinstance(kernels, RecordableKernels):
        return None
    try:
        return DecodeGraphs(decoder, kernels, cache, shape, _CudaRecorder())
    except RuntimeError as error:
        logger.warning("decodes cannot be recorded, so kernels are launched one by one, which is slower: %s", error)
        return None


class _CudaRecorder:
    """Records CUDA graphs that share their memory, as no two run at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, forward: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        # What is done at first use, such as compiling, cannot be recorded.
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # not typed in torch
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            forward()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = forward()
        return graph.replay, logits
