"""Which tests may run beside each other, and where their standalones are."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

ON_STANDALONE = "tests/standalone/"

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores already.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# How fast the machine is, with all that runs beside a test, is no property of what is tested.
settings.register_profile("leeway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("leeway")


class ByFixtures(LoadFileScheduling):
    """Tests of one file share fixtures, and those on the standalone share all of it: each such group has one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return ON_STANDALONE if nodeid.startswith(ON_STANDALONE) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixtures:
    return ByFixtures(config, log)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory to be, for a standalone of a test's own; the names of tests would make its path too long."""
    return tmp_path_factory.mktemp("own") / "state"
