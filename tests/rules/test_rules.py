"""The chart's rules, run by Prometheus' own tool on made-up series."""

import shutil
import subprocess
from pathlib import Path

import pytest
from leeway_standalone.binaries import ensure

RULES = Path(__file__).parents[2] / "charts" / "leeway" / "files" / "rules.yaml"
TESTS = Path(__file__).with_name("rules_test.yaml")


@pytest.fixture(scope="session")
def promtool() -> Path:
    return ensure(["promtool"])["promtool"]


def test_rules_are_sound(promtool: Path) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_say_what_they_should(promtool: Path, tmp_path: Path) -> None:
    for file, name in ((RULES, "rules.yaml"), (TESTS, "rules_test.yaml")):
        shutil.copy(file, tmp_path / name)
    done = subprocess.run(
        [promtool, "test", "rules", "rules_test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
