"""Runs plans on the model."""

from typing import NamedTuple

import numpy as np
import torch

from leeway_engine.batch_rows import BatchRows
from leeway_engine.layout import lay_out
from leeway_engine.logit_changes import change_logits
from leeway_engine.messages import TokenLogprobs
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kernels import Kernels
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.spans import Spans
from leeway_engine.sampler import Draws, sample
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import Request
from leeway_engine.token_logprobs import token_logprobs


class Drawn(NamedTuple):
    """The next token of a request, with log-probabilities if it asked for them."""

    request: Request
    token_id: int
    logprobs: TokenLogprobs | None


class ModelRunner:
    """Turns a plan into one forward pass and the tokens drawn after it."""

    def __init__(self, decoder: Decoder, kernels: Kernels, cache: KvCache, rows: BatchRows) -> None:
        """`rows` are shared with the engine, which lets requests enter and leave."""
        self._decoder = decoder
        self._cache = cache
        self._rows = rows
        self._kernels = kernels
        self._device = decoder.embedding.weight.device

    @property
    def path(self) -> str:
        """What ran the last plan, for the metrics."""
        return self._kernels.name

    @torch.inference_mode()
    def run(self, plan: Plan) -> list[Drawn]:
        """The next token of each request whose known tokens are all in KV after this plan."""
        rows = self._rows
        for request in plan.grown:
            rows.grow(request)
        requests = plan.decodes + [chunk.request for chunk in plan.prefills]
        spans = Spans(
            start=np.array([request.computed for request in requests], np.int64),
            count=np.array([1] * len(plan.decodes) + [chunk.tokens for chunk in plan.prefills], np.int64),
            row=rows.of(requests),
            blocks=rows.blocks,
            block_size=rows.block_size,
        )
        sampled = np.flatnonzero(spans.end == np.array([request.known for request in requests]))
        batch = lay_out(rows, spans, sampled, self._kernels, self._device)
        logits = self._decoder(batch, self._cache, self._kernels)
        if not len(sampled):
            return []
        row, end = spans.row[sampled], spans.end[sampled]
        drawn = sample(change_logits(logits, rows, row, end), Draws.of(rows, row, end))
        logprobs = token_logprobs(logits, drawn, rows.logprobs[row])
        tokens = drawn.cpu().numpy()
        rows.tokens[row, end] = tokens
        return [
            Drawn(requests[index], token_id, logprobs.get(place))
            for place, (index, token_id) in enumerate(zip(sampled.tolist(), tokens.tolist(), strict=True))
        ]
