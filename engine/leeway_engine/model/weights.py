"""Loads a decoder from a Hugging Face folder or a GGUF file."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from leeway_engine.model.config import ModelConfig, UnsupportedModelError, config_from_huggingface
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.gguf_file import GgufFile
from leeway_engine.model.packed_linear import can_pack, pack
from leeway_engine.model.row_counts import is_onednns

Read = Callable[[str], Tensor]
"""Gives a tensor by the name that it has in Hugging Face's checkpoints."""

_ALIGNED = 64
"""Elements to whose multiples a weight's place is rounded, so that vectors of any type lie well."""

NORMS = {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}


def load_decoder(path: Path, dtype: torch.dtype, device: str = "cpu") -> Decoder:
    """Load the model of a folder with `config.json` and safetensors, or of a `.gguf` file."""
    if path.is_dir():
        config, read = _open_folder(path)
    elif path.suffix == ".gguf":
        gguf = GgufFile(path)
        config, read = gguf.config, lambda name: torch.tensor(gguf.tensor(name))
    else:
        raise UnsupportedModelError(f"{path} is neither a folder with config.json nor a .gguf file")
    with torch.device("meta"):
        decoder = Decoder(config)
    weights = _room(decoder, dtype, device)
    for name, tensor in _weights(config, read):
        if tensor.shape != weights[name].shape:
            shapes = f"{list(tensor.shape)}, but its configuration asks for {list(weights[name].shape)}"
            raise UnsupportedModelError(f"{path} holds weights for {name} of shape {shapes}")
        weights[name].copy_(tensor)
    if config.tied_embeddings:
        weights["head.weight"] = weights["embedding.weight"]
    decoder.load_state_dict(weights, assign=True)
    del weights
    decoder = decoder.to(device=device, dtype=dtype).requires_grad_(False)
    decoder.pads_rows = is_onednns(decoder.embedding.weight)
    if can_pack(decoder.embedding.weight):
        pack(decoder)
    return decoder


def _room(decoder: Decoder, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """Make memory for all weights in pieces that the system can give in large pages.

    A layer's matrices share one that holds nothing else, so that it is given back once they are packed.
    """
    shapes: dict[str, dict[str, torch.Size]] = defaultdict(dict)
    for name, weight in decoder.named_parameters():
        shapes["vectors" if weight.ndim == 1 else ".".join(name.split(".")[:2])][name] = weight.shape
    return {name: weight for piece in shapes.values() for name, weight in _cut_up(piece, dtype, device).items()}


def _cut_up(shapes: dict[str, torch.Size], dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    ends = list(accumulate(-(-shape.numel() // _ALIGNED) * _ALIGNED for shape in shapes.values()))
    memory = torch.empty(ends[-1], dtype=dtype, device=device)
    begins = (0, *ends[:-1])
    return {
        name: memory[begin : begin + shape.numel()].view(shape)
        for (name, shape), begin in zip(shapes.items(), begins, strict=True)
    }


def _open_folder(path: Path) -> tuple[ModelConfig, Read]:
    config_file = path / "config.json"
    if not config_file.is_file():
        raise UnsupportedModelError(f"{path} has no config.json; name a folder in Hugging Face's format")
    config = config_from_huggingface(json.loads(config_file.read_text()))
    files: list[Any] = [safe_open(file, framework="pt") for file in sorted(path.glob("*.safetensors"))]
    holders = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - no mapping

    def read(name: str) -> Tensor:
        if name not in holders:
            raise UnsupportedModelError(f"no safetensors file in {path} holds {name}")
        tensor: Tensor = holders[name].get_tensor(name)
        return tensor

    return config, read


def _weights(config: ModelConfig, read: Read) -> Iterator[tuple[str, Tensor]]:
    """All weights under the decoder's own names, with those of joined projections stacked."""
    yield "embedding.weight", read("model.embed_tokens.weight")
    yield "norm.weight", read("model.norm.weight")
    if not config.tied_embeddings:
        yield "head.weight", read("lm_head.weight")
    for number in range(config.layers):
        ours, theirs = f"layers.{number}", f"model.layers.{number}"
        for norm, name in NORMS.items():
            yield f"{ours}.{norm}.weight", read(f"{theirs}.{name}.weight")
        for kind in ("weight", "bias") if config.qkv_bias else ("weight",):
            parts = [read(f"{theirs}.self_attn.{part}_proj.{kind}") for part in "qkv"]
            yield f"{ours}.attention.qkv.{kind}", torch.cat(parts)
        for kind in ("weight", "bias") if config.output_bias else ("weight",):
            yield f"{ours}.attention.output.{kind}", read(f"{theirs}.self_attn.o_proj.{kind}")
        if config.qk_norm:
            yield f"{ours}.attention.query_norm.weight", read(f"{theirs}.self_attn.q_norm.weight")
            yield f"{ours}.attention.key_norm.weight", read(f"{theirs}.self_attn.k_norm.weight")
        parts = [read(f"{theirs}.mlp.{part}_proj.weight") for part in ("gate", "up")]
        yield f"{ours}.feed_forward.gate_up.weight", torch.cat(parts)
        yield f"{ours}.feed_forward.down.weight", read(f"{theirs}.mlp.down_proj.weight")
