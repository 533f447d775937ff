"""A wheel works outside of a checkout: all that the standalone and the demonstration read is inside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
from pathlib import Path
import leeway_standalone
from leeway_standalone.binaries.catalog import MODULE, build_key
from leeway_standalone.cri import api_pb2, api_pb2_grpc
from leeway_standalone.environment import chart_folder
from leeway_core.objective import Objective
from leeway_demo.traffic import requests
inside = [Path(leeway_standalone.__file__), MODULE / "go.mod", MODULE / "go.sum", Path(api_pb2.__file__)]
inside += [chart_folder() / name for name in ("Chart.yaml", "values.schema.json", "templates/crd.yaml")]
inside += [*(Path(leeway_standalone.__file__).parent / "addons").glob("*.yaml")]
assert len(inside) > 8 and build_key()
assert requests(30.0, 1.0, Objective(name="a", ttft_ms=1), Objective(name="b", ttft_ms=1))
for path in inside:
    assert path.is_file(), path
    print(path)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel is installed, its dependencies apart."""
    wheels, folder = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = wheels.glob("leeway-*.whl")
    install = (
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--target",
        str(folder),
    )
    subprocess.run((*install, str(wheel)), check=True, timeout=120)
    return folder


def run(installed: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python away from the checkout, with the installed wheel before all else."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = (sys.executable, *arguments)
    return subprocess.run(
        command, cwd=installed, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_what_it_reads_is_inside(installed: Path) -> None:
    said = run(installed, "-c", SCRIPT)
    assert said.returncode == 0, said.stderr
    assert all(line.startswith(str(installed)) for line in said.stdout.splitlines())


def test_its_command_runs(installed: Path) -> None:
    assert run(installed, "-m", "leeway_cli", "--version").stdout.startswith("leeway ")
    status = run(installed, "-m", "leeway_cli", "status", "--state", str(installed / "none"))
    assert (status.returncode, "leeway up" in status.stdout) == (1, True)
