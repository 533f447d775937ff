"""The session's standalone, and a namespace for each test."""

import uuid
from collections.abc import Iterator

import pytest
from clusters import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One whole Kubernetes with Leeway installed, for all tests that don't break it."""
    with Cluster.running(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace under Pod Security `restricted`, deleted in the end."""
    words = "".join(letter if letter.isalnum() else "-" for letter in request.node.originalname.lower())
    name = f"{words[:50].strip('-')}-{uuid.uuid4().hex[:6]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
