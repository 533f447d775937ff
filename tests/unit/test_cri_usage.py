"""Usage is read from the kernel's own accounts of processes."""

import os
from pathlib import Path

import pytest
from leeway_standalone.cri.stats import CpuRates
from leeway_standalone.cri.usage import PAGE_BYTES, TICK_NS, cpu_ns, proportional_bytes, resident_bytes


def test_resident_memory_is_without_shared_pages() -> None:
    assert resident_bytes("1000 300 120 1 0 200 0\n") == 180 * PAGE_BYTES


@pytest.mark.parametrize("name", ["sh", "a b", "x) R 1 (y", ")"])
def test_cpu_time_is_found_whatever_the_program_is_called(name: str) -> None:
    fields = ["S", *map(str, range(1, 11)), "5", "6", "7", "8", "20", "0"]
    assert cpu_ns(f"12 ({name}) {' '.join(fields)}") == 26 * TICK_NS


def test_proportional_memory_is_anonymous() -> None:
    rollup = "55d0-7ffd ---p 00000000 00:00 0 [rollup]\nPss:  900 kB\nPss_Anon:  120 kB\nPss_File:  700 kB\n"
    assert proportional_bytes(rollup) == 120 * 1024


def test_own_process_is_read() -> None:
    own = Path(f"/proc/{os.getpid()}")
    assert cpu_ns((own / "stat").read_text()) > 0
    assert 0 < proportional_bytes((own / "smaps_rollup").read_text()) < 2 * resident_bytes((own / "statm").read_text())


def test_cpu_rate_is_taken_over_a_second_at_least() -> None:
    rates = CpuRates()
    assert rates.nano_cores("a", 0, 0) == 0
    assert rates.nano_cores("a", 2 * 10**9, 10**9) == 5 * 10**8
    assert rates.nano_cores("a", 2 * 10**9 + 1, 9 * 10**9) == 5 * 10**8
    rates.forget_all_but([])
    assert rates.nano_cores("a", 4 * 10**9, 10**9) == 0
