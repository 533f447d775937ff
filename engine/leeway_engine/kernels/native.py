"""The kernels in C++, for CPUs."""

import ctypes

import numpy as np
import torch
from torch import Tensor

from leeway_engine.kernels.compiler import compiled_library
from leeway_engine.model.config import ModelConfig
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.norm import RmsNorm
from leeway_engine.model.spans import Spans

_POINTERS = (
    *("heads", "attended", "cache", "query_norm", "key_norm", "cosines", "sines"),
    *("blocks", "row", "start", "first"),
)
_COUNTS = ("requests", "query_heads", "kv_heads", "head_dim", "block_size", "blocks_per_row")


class _Attention(ctypes.Structure):
    """`Attention` of cpu.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _COUNTS),
        ("epsilon", ctypes.c_double),
        ("scale", ctypes.c_double),
    )


def load_library(dtype: str) -> ctypes.CDLL:
    """Return the compiled kernels for one of torch's types; raises CompileError.

    They share torch's OpenMP, and so its threads and their number, because torch is loaded before them.
    """
    library = ctypes.CDLL(str(compiled_library(dtype)))
    pointer, count, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    library.leeway_attend.argtypes = (ctypes.POINTER(_Attention),)
    library.leeway_add_and_normalize.argtypes = (pointer, pointer, pointer, pointer, count, count, real)
    library.leeway_gate.argtypes = (pointer, pointer, count, count)
    for function in (library.leeway_attend, library.leeway_add_and_normalize, library.leeway_gate):
        function.restype = None
    return library


class NativeKernels:
    """Calls of the compiled library on tensors of the CPU."""

    name = "native"

    def __init__(self, library: ctypes.CDLL, config: ModelConfig, cosines: Tensor, sines: Tensor) -> None:
        """Take the library for the type of the decoder, and its rotary tables."""
        self._library = library
        self._config = config
        self._cosines = cosines.contiguous()
        self._sines = sines.contiguous()

    def attention(self, spans: Spans) -> "NativeAttention":
        """Point at the block table: nothing is padded or gathered."""
        return NativeAttention(self._library, self._config, self._cosines, self._sines, spans)

    def add_and_normalize(self, residual: Tensor, update: Tensor | None, norm: RmsNorm) -> Tensor:
        """Add an update to the residual stream in place, and return that normalized."""
        normed = torch.empty_like(residual)
        more = None if update is None else update.data_ptr()
        rows, size = residual.shape
        self._library.leeway_add_and_normalize(
            residual.data_ptr(), more, norm.weight.data_ptr(), normed.data_ptr(), rows, size, norm.epsilon
        )
        return normed

    def gate(self, gate_up: Tensor) -> Tensor:
        """Return silu(gate) * up."""
        rows, size = gate_up.shape[0], gate_up.shape[1] // 2
        gated = gate_up.new_empty((rows, size))
        self._library.leeway_gate(gate_up.data_ptr(), gated.data_ptr(), rows, size)
        return gated


class NativeAttention:
    """The attention of one iteration; it reads the cache through the block table."""

    def __init__(self, library: ctypes.CDLL, config: ModelConfig, cosines: Tensor, sines: Tensor, spans: Spans) -> None:
        """`cosines` and `sines` are the tables of all positions."""
        self._library = library
        first = np.append(0, np.cumsum(spans.count))
        # The structure holds addresses alone, so what they point at is kept here.
        self._pointed_at = (spans, cosines, sines, first)
        self._arguments = _Attention(
            cosines=cosines.data_ptr(),
            sines=sines.data_ptr(),
            blocks=spans.blocks.ctypes.data,
            row=spans.row.ctypes.data,
            start=spans.start.ctypes.data,
            first=first.ctypes.data,
            requests=len(spans.row),
            query_heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            block_size=spans.block_size,
            blocks_per_row=spans.blocks.shape[1],
            scale=config.head_dim**-0.5,
        )

    def attend(
        self, layer: int, heads: Tensor, norms: tuple[RmsNorm, RmsNorm] | None, cache: KvCache, attended: Tensor
    ) -> None:
        """Turn, keep, attend."""
        arguments = self._arguments
        arguments.heads = heads.data_ptr()
        arguments.attended = attended.data_ptr()
        arguments.cache = cache.layer(layer).data_ptr()
        if norms is not None:
            query, key = norms
            arguments.query_norm, arguments.key_norm = query.weight.data_ptr(), key.weight.data_ptr()
            arguments.epsilon = query.epsilon
        self._library.leeway_attend(arguments)
