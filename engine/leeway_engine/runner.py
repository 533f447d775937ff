"""Runs plans on the model."""

import numpy as np
import torch

from leeway_engine.batch_rows import BatchRows
from leeway_engine.layout import Device, Spans, lay_out
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.sampler import Draws, sample
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import Request


class ModelRunner:
    """Turns a plan into one forward pass and the tokens drawn after it."""

    def __init__(self, decoder: Decoder, cache: KvCache, rows: BatchRows) -> None:
        """`rows` are shared with the engine, which lets requests enter and leave."""
        self._decoder = decoder
        self._cache = cache
        self._rows = rows
        config, weight = decoder.config, decoder.embedding.weight
        self._device = Device(str(weight.device), weight.dtype, config.heads // config.kv_heads)

    @torch.inference_mode()
    def run(self, plan: Plan) -> list[tuple[Request, int]]:
        """The next token of each request whose known tokens are all in KV after this plan."""
        rows = self._rows
        for request in plan.grown:
            rows.grow(request)
        requests = plan.decodes + [chunk.request for chunk in plan.prefills]
        spans = Spans(
            rows.of(requests),
            np.array([request.computed for request in requests], np.int64),
            np.array([1] * len(plan.decodes) + [chunk.tokens for chunk in plan.prefills], np.int64),
        )
        sampled = np.flatnonzero(spans.end == np.array([request.known for request in requests]))
        batch = lay_out(rows, spans, sampled, self._device)
        logits = self._decoder(batch, self._cache)
        if not len(sampled):
            return []
        row, end = spans.row[sampled], spans.end[sampled]
        tokens = sample(logits, Draws.of(rows, row, end)).cpu().numpy()
        rows.tokens[row, end] = tokens
        return [(requests[place], token) for place, token in zip(sampled.tolist(), tokens.tolist(), strict=True)]
