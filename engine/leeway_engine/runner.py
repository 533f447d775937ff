"""Runs plans on the model."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from leeway_engine.batch_rows import BatchRows
from leeway_engine.decode_buckets import graph_path
from leeway_engine.decode_graphs import record_decodes
from leeway_engine.layout import lay_out
from leeway_engine.logit_changes import change_logits
from leeway_engine.messages import TokenLogprobs
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kernels import Kernels
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.spans import Ints, Spans
from leeway_engine.sampler import Draws, sample
from leeway_engine.scheduling.plan import Plan
from leeway_engine.scheduling.request import Request
from leeway_engine.token_logprobs import token_logprobs


class Drawn(NamedTuple):
    """The next token of a request, with log-probabilities if it asked for them."""

    request: Request
    token_id: int
    logprobs: TokenLogprobs | None


class Flight(NamedTuple):
    """A forward pass that was launched, and the requests that get a token after it."""

    requests: list[Request]
    logits: Tensor
    """[requests, vocabulary]"""
    row: Ints
    end: Ints
    """How many tokens each request has before the one to be drawn."""
    path: str
    """How it is computed: by which kernels, or graph-N for a recording of N decodes."""


class ModelRunner:
    """Turns a plan into one forward pass and the tokens drawn after it."""

    def __init__(self, decoder: Decoder, kernels: Kernels, cache: KvCache, rows: BatchRows) -> None:
        """`rows` are shared with the engine, which lets requests enter and leave."""
        self._decoder = decoder
        self._cache = cache
        self._rows = rows
        self._kernels = kernels
        self._device = decoder.embedding.weight.device
        self._graphs = record_decodes(decoder, kernels, cache, rows.blocks.shape)

    @torch.inference_mode()
    def launch(self, plan: Plan) -> Flight:
        """Start the forward pass of a plan; on a GPU it goes on after this returns, on a CPU it is done then.

        Requests get a token whose known tokens are all in KV after this plan. The rows may change once this returns.
        """
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
        logits, path = self._forward(spans, sampled)
        return Flight([requests[place] for place in sampled], logits, spans.row[sampled], spans.end[sampled], path)

    @torch.inference_mode()
    def collect(self, flight: Flight) -> list[Drawn]:
        """Draw the tokens after a forward pass, and wait for them."""
        requests, logits, row, end, _ = flight
        if not requests:
            return []
        rows = self._rows
        drawn = sample(change_logits(logits, rows, row, end), Draws.of(rows, row, end))
        logprobs = token_logprobs(logits, drawn, rows.logprobs[row])
        tokens = drawn.cpu().numpy()
        rows.tokens[row, end] = tokens
        return [
            Drawn(request, token_id, logprobs.get(place))
            for place, (request, token_id) in enumerate(zip(requests, tokens.tolist(), strict=True))
        ]

    def settle(self) -> None:
        """Wait for all that the device does; raises where a fault has made it of no use to this process."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _forward(self, spans: Spans, sampled: Ints) -> tuple[Tensor, str]:
        graphs = self._graphs
        if graphs and len(sampled) == len(spans.count) and (bucket := graphs.bucket(spans)):
            return graphs.run(bucket, self._rows.tokens[spans.row, spans.start], spans), graph_path(bucket)
        batch = lay_out(self._rows, spans, sampled, self._kernels, self._device)
        return self._decoder(batch, self._cache, self._kernels), self._kernels.name
