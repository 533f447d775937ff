"""Which kernels a decoder runs on."""

import logging
from concurrent.futures import Future
from ctypes import CDLL
from functools import cache
from threading import Thread
from typing import Literal

import torch

from leeway_engine.kernels.compiler import ELEMENTS
from leeway_engine.kernels.eager import EagerKernels
from leeway_engine.kernels.native import NativeKernels, load_library
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kernels import Kernels

KernelMode = Literal["auto", "eager"]
"""auto takes the quickest kernels that the machine can have, eager those of plain torch."""

PATIENCE_S = 5.0
"""How long a decoder that is loaded waits for a compiler that is still at work."""

logger = logging.getLogger(__name__)


@cache
def _library(dtype: str) -> Future[CDLL]:
    """Load the library in a thread, once in this process."""
    library: Future[CDLL] = Future()

    def load() -> None:
        try:
            library.set_result(load_library(dtype))
        except Exception as error:  # noqa: BLE001 - whoever waits for the library gets it
            library.set_exception(error)

    Thread(target=load, name="compile-kernels", daemon=True).start()
    return library


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def begin_compiling(device: str, dtype: torch.dtype) -> None:
    """Have the CPU kernels compiled while something else is done, such as loading weights."""
    if device == "cpu" and _name(dtype) in ELEMENTS:
        _library(_name(dtype))


def choose_kernels(decoder: Decoder, mode: KernelMode = "auto", patience_s: float = PATIENCE_S) -> Kernels:
    """Return kernels for this decoder; where the compiled ones cannot be had in time, a log line says why."""
    weight = decoder.embedding.weight
    arguments = (decoder.config, decoder.cosines, decoder.sines)
    name = _name(weight.dtype)
    if mode == "auto" and weight.device.type == "cuda" and weight.dtype != torch.float64:
        return _triton_kernels(decoder)
    if mode == "eager" or weight.device.type != "cpu":
        return EagerKernels(*arguments)
    if name not in ELEMENTS:
        logger.warning("no compiled kernels for %s, so iterations run on plain torch, which is slower", name)
        return EagerKernels(*arguments)
    try:
        return NativeKernels(_library(name).result(patience_s), *arguments)
    except TimeoutError:
        why = f"compiling them takes longer than {patience_s:g} s; the next start finds them done"
    except Exception as error:  # noqa: BLE001 - whatever the machine lacks, the pod serves without
        why = str(error)
    logger.warning("no compiled kernels, so iterations run on plain torch, which is slower: %s", why)
    return EagerKernels(*arguments)


def _triton_kernels(decoder: Decoder) -> Kernels:
    arguments = (decoder.config, decoder.cosines, decoder.sines)
    try:
        from leeway_engine.kernels.triton_attention import TritonKernels
    except ImportError as error:
        logger.warning("no Triton, so iterations run on plain torch, which is slower: %s", error)
        return EagerKernels(*arguments)
    return TritonKernels(*arguments)
