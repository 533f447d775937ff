"""A model's tokenizer, chat template and stop tokens, from a Hugging Face folder or a GGUF file."""

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from leeway_core.errors import UserError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from leeway_engine.model.gguf_file import GgufFile

_SPLIT_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLIT_LLAMA3 = _SPLIT_QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_CONTROL, _USER_DEFINED = 3, 4


class ChatTemplateError(ValueError):
    """The model's chat template does not take these messages, or there is none."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """What turns text into a model's tokens and back."""

    tokenizer: Tokenizer
    stop_token_ids: frozenset[int]
    chat_template: Template | None
    template_tokens: dict[str, str]
    """`bos_token` and `eos_token`, as templates name them."""

    @classmethod
    def load(cls, path: Path) -> "TextModel":
        """Read a folder with tokenizer.json, or a GGUF file."""
        return _from_gguf(path) if path.is_file() else _from_folder(path)

    async def encode(self, text: str, *, special: bool) -> list[int]:
        """Tokenize off the event loop; `special` adds what the model wants around a plain prompt."""
        encoding = await self.tokenizer.async_encode(text, add_special_tokens=special)
        ids: list[int] = encoding.ids
        return ids

    def render(self, messages: list[dict[str, Any]]) -> str:
        """Write a conversation as the model's prompt, up to where its answer begins."""
        if self.chat_template is None:
            raise ChatTemplateError("this model has no chat template; use /v1/completions")
        try:
            return self.chat_template.render(messages=messages, add_generation_prompt=True, **self.template_tokens)
        except (TemplateError, TypeError) as error:
            raise ChatTemplateError(f"the model's chat template refuses these messages: {error}") from error


def _compiled(template: str | None) -> Template | None:
    if template is None:
        return None

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def strftime_now(layout: str) -> str:
        return datetime.datetime.now(tz=datetime.UTC).strftime(layout)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment.from_string(template)


def _from_folder(folder: Path) -> TextModel:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise UserError(f"{folder} is neither a GGUF file nor a folder with a tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    settings = _read_json(folder / "tokenizer_config.json")
    template_file = folder / "chat_template.jinja"
    template = template_file.read_text() if template_file.is_file() else settings.get("chat_template")
    if isinstance(template, list):
        template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
    named = {name: _content(settings[name]) for name in ("bos_token", "eos_token") if settings.get(name)}
    stops = {tokenizer.token_to_id(named["eos_token"])} if "eos_token" in named else set()
    for config in (_read_json(folder / "generation_config.json"), _read_json(folder / "config.json")):
        eos = config.get("eos_token_id")
        stops |= set(eos) if isinstance(eos, list) else {eos}
    return TextModel(tokenizer, frozenset(stop for stop in stops if stop is not None), _compiled(template), named)


def _read_json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return content


def _content(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _from_gguf(file: Path) -> TextModel:
    gguf = GgufFile(file)

    def field(name: str, default: Any = None) -> Any:
        return gguf.metadata(f"tokenizer.{name}", default)

    if (kind := field("ggml.model")) != "gpt2":
        raise UserError(f"{file}: cannot read a tokenizer of kind {kind!r}; use the model's Hugging Face folder")
    tokens, types = field("ggml.tokens"), field("ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in field("ggml.merges")]
    kind = field("ggml.pre", "default")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=kind == "llama-bpe"))
    tokenizer.pre_tokenizer = _pre_tokenizer(kind)
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    # In order of their ids, so that each keeps its own.
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t, k in zip(tokens, types, strict=True) if k == _CONTROL]
    )
    tokenizer.add_tokens([AddedToken(t) for t, k in zip(tokens, types, strict=True) if k == _USER_DEFINED])
    named = {
        name: tokens[number] for name in ("bos_token", "eos_token") if (number := field(f"ggml.{name}_id")) is not None
    }
    if field("ggml.add_bos_token", False):
        bos = named["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])]
        )
    stops = {field(f"ggml.{name}_token_id") for name in ("eos", "eot")}
    return TextModel(
        tokenizer, frozenset(stop for stop in stops if stop is not None), _compiled(field("chat_template")), named
    )


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    match name:
        case "smollm":
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
        case "qwen2":
            return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_SPLIT_QWEN2), "isolated"), byte_level])
        case "llama-bpe":
            return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_SPLIT_LLAMA3), "isolated"), byte_level])
        case "gpt-2" | "default":
            return gpt2
    raise UserError(f"unknown pre-tokenizer {name!r} in the GGUF file; use the model's Hugging Face folder")
