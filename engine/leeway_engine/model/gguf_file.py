"""Reads a model from a GGUF file, as if it were a Hugging Face checkpoint."""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray

from leeway_engine.model.config import ModelConfig, RopeScaling, UnsupportedModelError

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")


class GgufFile:
    """Metadata and tensors of one file."""

    def __init__(self, path: Path) -> None:
        """Map the file; tensors are decoded when asked for."""
        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def metadata(self, key: str, default: Any = None) -> Any:
        """A value of the header."""
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    @cached_property
    def config(self) -> ModelConfig:
        """The shape of the model."""
        architecture = self.metadata("general.architecture")
        if architecture not in ("llama", "qwen2", "qwen3"):
            raise UnsupportedModelError(f"GGUF architecture {architecture!r} is none of llama, qwen2, qwen3")

        def value(key: str, default: Any = None) -> Any:
            return self.metadata(f"{architecture}.{key}", default)

        heads, hidden = value("attention.head_count"), value("embedding_length")
        return ModelConfig(
            architecture=architecture,
            vocabulary=len(self.metadata("tokenizer.ggml.tokens")),
            hidden=hidden,
            intermediate=value("feed_forward_length"),
            layers=value("block_count"),
            heads=heads,
            kv_heads=value("attention.head_count_kv", heads),
            head_dim=value("attention.key_length", hidden // heads),
            context=value("context_length"),
            norm_epsilon=value("attention.layer_norm_rms_epsilon"),
            rope_theta=value("rope.freq_base", 10000.0),
            rope_scaling=self._rope_scaling(value("rope.scaling.type"), value("rope.scaling.factor", 1.0)),
            tied_embeddings="output.weight" not in self._tensors,
            qkv_bias="blk.0.attn_q.bias" in self._tensors,
            output_bias="blk.0.attn_output.bias" in self._tensors,
            qk_norm=architecture == "qwen3",
        )

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A decoded tensor by its name in Hugging Face's checkpoints."""
        module, _, kind = name.rpartition(".")
        prefix = ""
        if match := LAYER.fullmatch(module):
            prefix, module = f"blk.{match[1]}.", match[2]
        tensor = self._decoded(f"{prefix}{NAMES[module]}.{kind}")
        if self.config.architecture == "llama" and module in ("self_attn.q_proj", "self_attn.k_proj"):
            return self._halves_apart(tensor)
        return tensor

    def _decoded(self, name: str) -> NDArray[np.float32]:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise UnsupportedModelError(f"the GGUF file has no tensor {name}; a model must lie in one file")
        return dequantize(tensor.data, tensor.tensor_type)

    def _halves_apart(self, tensor: NDArray[np.float32]) -> NDArray[np.float32]:
        """GGUF's Llama rotates neighbours, Hugging Face's the two halves of a head."""
        pairs = tensor.reshape(-1, self.config.head_dim // 2, 2, *tensor.shape[1:])
        return pairs.swapaxes(1, 2).reshape(tensor.shape)

    def _rope_scaling(self, kind: str | None, factor: float) -> RopeScaling | None:
        if "rope_freqs.weight" in self._tensors:
            return RopeScaling("divisors", divisors=tuple(self._decoded("rope_freqs.weight").tolist()))
        if kind in (None, "none"):
            return None
        if kind == "linear":
            return RopeScaling(kind, factor)
        raise UnsupportedModelError(f"rope scaling {kind!r} is not supported; only linear and llama3 are")
