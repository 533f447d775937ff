import os
from pathlib import Path

import pytest
from leeway_core.errors import UserError
from leeway_load.trace import read_trace

REPOSITORY = Path(__file__).parents[2]
DATA = Path(os.environ.get("LEEWAY_DATA", REPOSITORY.parent / "shared" / "data"))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_azure_rows_keep_their_gaps_and_lengths(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 18:15:46.6805900,374,44\r\n"
        "2023-11-16 18:15:50.9951690,396,109\r\n",
    )
    trace = read_trace(path)
    assert [(one.prompt_tokens, one.output_tokens) for one in trace.records] == [(374, 44), (396, 109)]
    assert trace.records[1].arrival_s - trace.records[0].arrival_s == pytest.approx(4.314579, abs=1e-5)
    assert trace.tick_s == 0


def test_mooncake_rows_keep_their_prefixes_and_tell_how_coarse_time_is(tmp_path: Path) -> None:
    rows = "".join(
        f'{{"timestamp": {ms}, "input_length": 600, "output_length": 5, "hash_ids": [0, {ms}]}}\n'
        for ms in (0, 0, 3000, 6000, 8999)
    )
    trace = read_trace(write(tmp_path, "m.jsonl", rows))
    assert [one.arrival_s for one in trace.records] == [0, 0, 3, 6, 8.999]
    assert trace.records[2].prefix_hashes == (0, 3000)
    assert trace.tick_s == pytest.approx(3)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.txt", "", "expected an Azure"),
        ("a.csv", "a,b\n1,2\n", ":1: expected the columns TIMESTAMP"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,many,1\n", ":2: "),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", ":2: "),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,-1,1\n", ":2: token counts"),
        ("m.jsonl", '{"timestamp": 0, "input_length": 1}\n', ":1: no 'output_length'"),
        ("m.jsonl", '{"timestamp": 0, "input_length": 1, "output_length": 1}\n[1]\n', ":2: "),
        ("m.jsonl", "not JSON\n", ":1: "),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_line(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        read_trace(write(tmp_path, name, text))


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        read_trace(tmp_path / "binary.csv")


def test_the_slice_in_the_examples_can_be_read() -> None:
    trace = read_trace(REPOSITORY / "examples" / "azure-conversations.csv")
    assert len(trace.records) == 2000


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("azure2023/AzureLLMInferenceTrace_conv.csv", 19_366),
        ("azure2023/AzureLLMInferenceTrace_code.csv", 8_819),
        ("mooncake/conversation_trace.jsonl", 12_031),
    ],
)
def test_whole_public_traces_can_be_read(path: str, count: int) -> None:
    if not DATA.exists():
        pytest.skip(f"no public traces at {DATA}; set LEEWAY_DATA")
    assert len(read_trace(DATA / "traces" / path).records) == count
