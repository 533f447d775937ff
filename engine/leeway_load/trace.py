"""Reads public request traces: when each request came, and how long its prompt and its output were."""

import csv
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from leeway_core.errors import UserError

AZURE_COLUMNS = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
MOONCAKE_BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One request of a trace."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    prefix_hashes: tuple[int, ...] = ()
    """Identity of each block of MOONCAKE_BLOCK_TOKENS prompt tokens, if the trace knows it: equal leading hashes are
    equal leading tokens."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests of a trace in order of arrival."""

    records: tuple[TraceRecord, ...]
    tick_s: float = 0.0
    """Resolution of the arrival times where the trace rounded them coarsely: requests of one tick came somewhere
    within it."""


def read_trace(path: Path) -> Trace:
    """Read an Azure 2023 trace (.csv) or a Mooncake trace (.jsonl)."""
    readers = {".csv": _azure, ".jsonl": _mooncake}
    if path.suffix not in readers:
        raise UserError(f"{path}: expected an Azure 2023 trace (.csv) or a Mooncake trace (.jsonl)")
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            records = tuple(sorted(readers[path.suffix](lines, str(path)), key=lambda record: record.arrival_s))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file") from error
    if not records:
        raise UserError(f"{path}: no requests in it")
    return Trace(records, _tick_s(records) if path.suffix == ".jsonl" else 0.0)


def _azure(lines: Iterable[str], name: str) -> Iterator[TraceRecord]:
    rows = csv.reader(lines)
    if next(rows, None) != AZURE_COLUMNS:
        raise UserError(f"{name}:1: expected the columns {','.join(AZURE_COLUMNS)}")
    for row in rows:
        try:
            timestamp, prompt, output = row
            # Seven decimals are one more than datetime reads.
            arrival_s = datetime.fromisoformat(f"{timestamp[:26]}+00:00").timestamp()
            yield _record(arrival_s, int(prompt), int(output))
        except ValueError as error:
            raise UserError(f"{name}:{rows.line_num}: {error}") from error


def _mooncake(lines: Iterable[str], name: str) -> Iterator[TraceRecord]:
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            hashes = tuple(int(block) for block in row.get("hash_ids", ()))
            yield _record(row["timestamp"] / 1e3, int(row["input_length"]), int(row["output_length"]), hashes)
        except KeyError as error:
            raise UserError(f"{name}:{number}: no {error} in it") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{name}:{number}: {error}") from error


def _record(arrival_s: float, prompt_tokens: int, output_tokens: int, hashes: tuple[int, ...] = ()) -> TraceRecord:
    if prompt_tokens < 0 or output_tokens < 0:
        raise ValueError("token counts can't be negative")
    return TraceRecord(arrival_s, prompt_tokens, output_tokens, hashes)


def _tick_s(records: tuple[TraceRecord, ...]) -> float:
    times = sorted({record.arrival_s for record in records})
    return statistics.median(later - earlier for earlier, later in pairwise(times)) if len(times) > 1 else 0.0
