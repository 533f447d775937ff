"""Which tests may run beside each other."""

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

ON_STANDALONE = "tests/standalone/"

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores already.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


class ByFixtures(LoadFileScheduling):
    """Tests of one file share fixtures, and those on the standalone share all of it: each such group has one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return ON_STANDALONE if nodeid.startswith(ON_STANDALONE) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixtures:
    return ByFixtures(config, log)
