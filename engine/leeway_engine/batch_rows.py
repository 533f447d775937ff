"""What the runner knows of the running requests: a row of each array for one request."""

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
        self.seed[row] = seed

    def leave(self, request: Request) -> None:
        """Take the row back, if the request has one."""
        row = self._row.pop(request, None)
        if row is not None:
            self._unused.append(row)

    def grow(self, request: Request) -> None:
        """Note the block that a request got last."""
        self.blocks[self._row[request], len(request.blocks) - 1] = request.blocks[-1]

    def of(self, requests: list[Request]) -> Ints:
        """Rows of these requests."""
        return np.array([self._row[request] for request in requests], np.int64)
