"""Compiled and eager kernels give what a naive reading of the formulas gives; compiled ones are never a must."""

import logging
import stat
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from attention_reference import MIXED, SHAPES, TOLERANCE, Shape, compare_attention, config, naive_norm, norm
from leeway_engine.kernels import choice, compiler
from leeway_engine.kernels.choice import choose_kernels
from leeway_engine.kernels.compiler import CompileError, compiled_library
from leeway_engine.kernels.eager import EagerKernels
from leeway_engine.kernels.native import NativeKernels, load_library
from leeway_engine.model.config import ModelConfig
from leeway_engine.model.decoder import Decoder
from leeway_engine.model.kernels import Kernels
from leeway_engine.model.kv_cache import KvCache
from leeway_engine.model.rope import rotary_tables
from leeway_engine.model.spans import Spans
from torch import Tensor

KINDS = ("eager", "native")
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


@pytest.fixture(scope="module")
def kernels() -> Callable[[str, ModelConfig, torch.dtype], Kernels]:
    def make(kind: str, model: ModelConfig, dtype: torch.dtype) -> Kernels:
        tables = tuple(table.to(dtype) for table in rotary_tables(model, model.context))
        if kind == "eager":
            return EagerKernels(model, *tables)
        try:
            library = load_library(str(dtype).removeprefix("torch."))
        except CompileError as error:
            pytest.skip(f"no compiled kernels here: {error}")
        return NativeKernels(library, model, *tables)

    return make


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_the_formula(
    kernels: Callable[[str, ModelConfig, torch.dtype], Kernels], kind: str, name: str, dtype: torch.dtype
) -> None:
    shape = SHAPES[name]
    compare_attention(kernels(kind, config(shape), dtype), config(shape), dtype, shape.block_size, MIXED)


@pytest.mark.parametrize(
    "cases", [[(1300, 1), (3, 1)], [(510, 5)], [(1024, 1)], [(511, 1), (512, 1)], [(500, 90)], [(0, 1)]], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_long_contexts_are_summed_in_parts(
    kernels: Callable[[str, ModelConfig, torch.dtype], Kernels], kind: str, cases: list[tuple[int, int]]
) -> None:
    shape = Shape(heads=4, kv_heads=2, head_dim=16)
    compare_attention(kernels(kind, config(shape), torch.float64), config(shape), torch.float64, 16, cases)


def test_compiled_attention_of_a_token_is_the_same_bit_for_bit_in_any_chunk_and_batch(
    kernels: Callable[[str, ModelConfig, torch.dtype], Kernels],
) -> None:
    model, dtype = config(Shape()), torch.bfloat16
    native = kernels("native", model, dtype)
    torch.manual_seed(0)
    heads = torch.randn(700, 15 * 64).to(dtype)
    blocks = np.arange(100).reshape(2, 50)

    def attend(*spans: tuple[int, int, int]) -> Tensor:
        cache = KvCache(model, 100, 16, dtype, "cpu")
        rows = []
        for start, count, row in spans:
            span = Spans(np.array([start, 0]), np.array([count, 3]), np.array([row, 1]), blocks, 16)
            batch = torch.cat((heads[start : start + count], heads[:3]))
            attended = batch.new_empty((len(batch), 9 * 64))
            native.attention(span).attend(0, batch, None, cache, attended)
            rows.append(attended[:count])
        return torch.cat(rows)

    whole = attend((0, 700, 0))
    assert torch.equal(attend((0, 1, 0), (1, 500, 0), (501, 30, 0), (531, 169, 0)), whole)
    assert torch.equal(attend((0, 699, 0), (699, 1, 0)), whole)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 3, 16, 48, 77, 576])
@pytest.mark.parametrize("kind", KINDS)
def test_small_operations_are_their_formulas(
    kernels: Callable[[str, ModelConfig, torch.dtype], Kernels], kind: str, size: int, dtype: torch.dtype
) -> None:
    chosen = kernels(kind, config(Shape()), dtype)
    torch.manual_seed(0)
    weights = norm(size, dtype)
    for rows in (1, 5, 64):
        residual, update = torch.randn(2, rows, size).to(dtype)
        total = (residual.double() + update.double()).to(dtype)
        normed = chosen.add_and_normalize(residual, update, weights)
        torch.testing.assert_close(residual, total)
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(normed.double(), naive_norm(total, weights), atol=tolerance, rtol=tolerance)
        unchanged = residual.clone()
        assert torch.equal(chosen.add_and_normalize(residual, None, weights), normed)
        assert torch.equal(residual, unchanged)
        gate, up = torch.randn(2, rows, size).to(dtype) * 20
        expected = gate.double() * gate.double().sigmoid() * up.double()
        gated = chosen.gate(torch.cat((gate, up), -1))
        torch.testing.assert_close(gated.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_gates_stay_finite(kernels: Callable[[str, ModelConfig, torch.dtype], Kernels], kind: str) -> None:
    gates = torch.tensor([[-1e30, -200.0, -88.0, 0.0, 88.0, 1e30]])
    gated = kernels(kind, config(Shape()), torch.float32).gate(torch.cat((gates, torch.ones(1, 6)), -1))
    torch.testing.assert_close(gated, torch.tensor([[0.0, 0.0, 0.0, 0.0, 88.0, 1e30]]))


@pytest.fixture
def decoder() -> Decoder:
    made = Decoder(config(Shape()))
    return made.requires_grad_(False)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that has loaded nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    choice._library.cache_clear()
    return tmp_path


def write_compiler(folder: Path, script: str) -> Path:
    file = folder / "compiler"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def chosen_and_log(decoder: Decoder, caplog: pytest.LogCaptureFixture, patience_s: float = 60) -> tuple[Kernels, str]:
    with caplog.at_level(logging.WARNING):
        return choose_kernels(decoder, patience_s=patience_s), caplog.text


def test_without_a_compiler_plain_torch_stands_in_and_the_log_says_so(
    decoder: Decoder, fresh: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(fresh))
    kernels, log = chosen_and_log(decoder, caplog)
    assert isinstance(kernels, EagerKernels)
    assert log.count("\n") == 1
    assert "no C++ compiler on PATH" in log


def test_a_compiler_that_fails_is_quoted(
    decoder: Decoder, fresh: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = '[ "$1" = --version ] || { echo "no such thing as -fopenmp" >&2; exit 3; }'
    monkeypatch.setenv("CXX", str(write_compiler(fresh, script)))
    kernels, log = chosen_and_log(decoder, caplog)
    assert isinstance(kernels, EagerKernels)
    assert "failed with exit code 3: no such thing as -fopenmp" in log
    assert not list((fresh / "leeway/kernels").glob("*.so"))


def test_a_slow_compiler_delays_nothing(
    decoder: Decoder, fresh: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", str(write_compiler(fresh, "sleep 1; exit 1")))
    kernels, log = chosen_and_log(decoder, caplog, patience_s=0.05)
    assert isinstance(kernels, EagerKernels)
    assert "takes longer than 0.05 s" in log


def test_an_unwritable_cache_is_named(
    decoder: Decoder, fresh: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (fresh / "leeway").write_text("a file where a folder should be")
    monkeypatch.setenv("CXX", str(write_compiler(fresh, "exit 0")))
    kernels, log = chosen_and_log(decoder, caplog)
    assert isinstance(kernels, EagerKernels)
    assert "set XDG_CACHE_HOME" in log


def test_a_user_without_a_home_does_without(
    decoder: Decoder, fresh: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setenv("CXX", str(write_compiler(fresh, "exit 0")))
    kernels, log = chosen_and_log(decoder, caplog)
    assert isinstance(kernels, EagerKernels)
    assert "home directory" in log


def test_compiled_kernels_can_be_turned_off(decoder: Decoder, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(choose_kernels(decoder, "eager"), EagerKernels)
    assert isinstance(choose_kernels(decoder.half()), EagerKernels)
    assert "no compiled kernels for float16" in caplog.text


def test_processes_that_want_the_same_library_compile_it_once(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'[ "$1" = --version ] && exit 0; echo >>{fresh}/runs; sleep 0.3; for last; do :; done; echo >"$last"'
    monkeypatch.setenv("CXX", str(write_compiler(fresh, script)))
    left = fresh / "leeway/kernels"
    with get_context("fork").Pool(3) as pool:
        libraries = set(pool.map(compiled_library, ["float32"] * 3, chunksize=1))
    assert len(libraries) == 1
    assert len((fresh / "runs").read_text()) == 1
    assert sorted(file.suffix for file in left.iterdir()) == [".lock", ".so"]


def test_another_source_compiler_or_type_is_another_library(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = '[ "$1" = --version ] && exec cat "$0"; for last; do :; done; echo >"$last"'
    monkeypatch.setenv("CXX", str(write_compiler(fresh, script)))
    libraries = {compiled_library("float32"), compiled_library("float32"), compiled_library("float64")}
    write_compiler(fresh, f"{script} # newer")
    libraries.add(compiled_library("float32"))
    source = fresh / "cpu.cpp"
    source.write_text("int x;")
    monkeypatch.setattr(compiler, "SOURCE", source)
    libraries.add(compiled_library("float32"))
    assert len(libraries) == 4
