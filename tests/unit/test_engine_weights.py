"""A model is the same from its Hugging Face folder and from a GGUF file, and what is not supported says so."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from leeway_engine.model.config import UnsupportedModelError, config_from_huggingface
from leeway_engine.model.gguf_file import LAYER, NAMES
from leeway_engine.model.rope import rotary_tables
from leeway_engine.model.weights import load_decoder
from reference_tokens import MODELS, save_model


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Order the rows of Llama's queries and keys as GGUF has them."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def gguf_name(name: str) -> str:
    module, _, kind = name.rpartition(".")
    match = LAYER.fullmatch(module)
    prefix, module = (f"blk.{match[1]}.", match[2]) if match else ("", module)
    return f"{prefix}{NAMES[module]}.{kind}"


def write_gguf(file: Path, name: str, weights: dict[str, torch.Tensor]) -> None:
    config = MODELS[name]
    writer = gguf.GGUFWriter(file, config.model_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_token_list([f"t{number}" for number in range(config.vocab_size)])
    interleaved_heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for theirs, weight in weights.items():
        heads = interleaved_heads.get(theirs.split(".")[-2]) if config.model_type == "llama" else None
        ordered = interleaved(weight, heads) if heads else weight
        writer.add_tensor(gguf_name(theirs), ordered.detach().float().contiguous().numpy())
    if config.rope_parameters["rope_type"] == "llama3":
        shape = config_from_huggingface(config.to_dict())
        plain = 1.0 / shape.rope_theta ** (torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
        angles = torch.atan2(*(table[1] for table in reversed(rotary_tables(shape, 2))))
        writer.add_tensor("rope_freqs.weight", (plain / angles).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", MODELS)
def test_folder_and_gguf_hold_the_same_model(tmp_path: Path, name: str) -> None:
    model = save_model(name, tmp_path / "folder")
    write_gguf(tmp_path / "model.gguf", name, dict(model.named_parameters()))
    folder = load_decoder(tmp_path / "folder", torch.float32)
    file = load_decoder(tmp_path / "model.gguf", torch.float32)
    for ours, theirs in zip(folder.parameters(), file.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.allclose(folder.cosines, file.cosines, atol=1e-4)
    assert torch.allclose(folder.sines, file.sines, atol=1e-4)


def test_sharded_folders_load(tmp_path: Path) -> None:
    model = save_model("qwen2-untied", tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="100KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    whole, shards = (load_decoder(tmp_path / part, torch.float64) for part in ("whole", "shards"))
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), shards.parameters(), strict=True))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope scaling 'yarn' is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window"),
    ],
)
def test_what_the_engine_lacks_is_named(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    save_model("qwen2-tied", tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UnsupportedModelError, match=why):
        load_decoder(tmp_path, torch.float32)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"has no config\.json"):
        load_decoder(tmp_path, torch.float32)
    save_model("llama-tied", tmp_path)
    next(tmp_path.glob("*.safetensors")).unlink()
    with pytest.raises(UnsupportedModelError, match=r"no safetensors file in .* holds model\.embed_tokens\.weight"):
        load_decoder(tmp_path, torch.float32)


def test_weights_of_another_shape_than_configured_are_named(tmp_path: Path) -> None:
    save_model("llama-tied", tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"intermediate_size": 72}))
    with pytest.raises(UnsupportedModelError, match=r"gate_up\.weight of shape \[160, 48\], .* asks for \[144, 48\]"):
        load_decoder(tmp_path, torch.float32)
