"""What the runner knows of the running requests: a row of each array for one request."""

from collections.abc import Mapping

import numpy as np

from leeway_engine.messages import Sampling
from leeway_engine.model.spans import Ints
from leeway_engine.scheduling.request import Request


class BatchRows:
    """Arrays, so that a batch is built without a loop over its requests."""

    def __init__(self, rows: int, context: int, block_size: int) -> None:
        """Make room for that many running requests of that many tokens."""
        self.block_size = block_size
        self.tokens = np.zeros((rows, context), np.int64)
        self.blocks = np.zeros((rows, -(-context // block_size)), np.int64)
        self.temperature = np.zeros(rows, np.float32)
        self.top_p = np.ones(rows, np.float32)
        self.top_k = np.zeros(rows, np.int64)
        self.min_p = np.zeros(rows, np.float32)
        self.repetition_penalty = np.ones(rows, np.float32)
        self.presence_penalty = np.zeros(rows, np.float32)
        self.frequency_penalty = np.zeros(rows, np.float32)
        self.prompt_tokens = np.zeros(rows, np.int64)
        self.biased = np.zeros(rows, np.bool_)
        self.logit_bias: dict[int, Mapping[int, float]] = {}
        """By row."""
        self.logprobs = np.full(rows, -1, np.int64)
        """How many likeliest tokens to give with each token; -1 gives not even its own log-probability."""
        self.seed = np.zeros(rows, np.uint64)
        self._row: dict[Request, int] = {}
        self._unused = list(range(rows))

    def enter(self, request: Request, token_ids: list[int], sampling: Sampling, seed: int) -> None:
        """Give a request a row, with all tokens known so far and the blocks it holds."""
        row = self._row[request] = self._unused.pop()
        self.tokens[row, : len(token_ids)] = token_ids
        self.blocks[row, : len(request.blocks)] = request.blocks
        self.temperature[row] = sampling.temperature
        self.top_p[row] = sampling.top_p
        self.top_k[row] = sampling.top_k
        self.min_p[row] = sampling.min_p
        self.repetition_penalty[row] = sampling.repetition_penalty
        self.presence_penalty[row] = sampling.presence_penalty
        self.frequency_penalty[row] = sampling.frequency_penalty
        self.prompt_tokens[row] = request.prompt_tokens
        self.biased[row] = bool(sampling.logit_bias)
        self.logit_bias[row] = sampling.logit_bias
        self.logprobs[row] = -1 if sampling.logprobs is None else sampling.logprobs
        self.seed[row] = seed

    def leave(self, request: Request) -> None:
        """Take the row back, if the request has one; what it holds stays until another request enters."""
        row = self._row.pop(request, None)
        if row is not None:
            self._unused.append(row)

    def grow(self, request: Request) -> None:
        """Note the block that a request got last."""
        self.blocks[self._row[request], len(request.blocks) - 1] = request.blocks[-1]

    def of(self, requests: list[Request]) -> Ints:
        """Rows of these requests."""
        return np.array([self._row[request] for request in requests], np.int64)
