"""An operator that dies at any of its calls to the API server leaves nothing that the next one does not put right."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import aiohttp
import kopf
import pytest
from clusters import Cluster, eventually
from leeway_operator.cluster import Cluster as Server
from leeway_operator.keeper import Keeper
from leeway_operator.login import log_in
from leeway_operator.memory import Memory
from leeway_operator.names import path_to
from leeway_operator.pod_client import PodClient
from leeway_operator.profile import Profile
from leeway_operator.reconciler import Reconciler
from leeway_operator.records import Records
from leeway_operator.tuner_client import TunerClient
from profiles import profile

NAMESPACE = "loop-faults"
SYSTEM = "leeway-system"
OPERATOR = "deployment/leeway-operator"
KINDS = "services,configmaps,secrets,serviceaccounts,statefulsets,deployments,roles,rolebindings"
CHILDREN = 11
MOST_CALLS = 40
"""More than an operator makes in two visits."""
ITS_OWN = {"clusterIP", "clusterIPs", "metadata", "status"}
"""Fields of an object that no two share."""

T = TypeVar("T")


class Killed(BaseException):
    """The end of the process, as nothing in it can catch."""


class MortalServer(Server):
    """The API server, to an operator that dies at one of its calls: before it is made, or before its answer comes."""

    calls = 0
    dies_at = 0
    answered = False

    async def get(self, path: str) -> dict[str, Any] | None:
        return await self._until_death(lambda: super(MortalServer, self).get(path))

    async def items(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        return await self._until_death(lambda: super(MortalServer, self).items(path, labels=labels, fields=fields))

    async def apply(self, path: str, content: dict[str, Any]) -> None:
        await self._until_death(lambda: super(MortalServer, self).apply(path, content))

    async def _until_death(self, call: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        dies = self.calls == self.dies_at
        if dies and not self.answered:
            raise Killed
        answer = await call()
        if dies:
            raise Killed
        return answer


@pytest.fixture(scope="module")
def without_operator(cluster: Cluster) -> Iterator[None]:
    """Stop the cluster's own operator meanwhile, and have no pods made."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("create", "quota", "no-pods", "--hard=pods=0", "-n", NAMESPACE)
    cluster.kubectl("scale", OPERATOR, "-n", SYSTEM, "--replicas=0")
    operators = ("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")
    eventually(lambda: not cluster.get(*operators)["items"], what="the operator's end")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBECONFIG", str(cluster.state.kubeconfig))
        yield
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    cluster.kubectl("scale", OPERATOR, "-n", SYSTEM, "--replicas=1")
    cluster.wait_ready(SYSTEM, OPERATOR)


class Operators:
    """Operators, one after the other."""

    def __init__(self, server: MortalServer, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def live(self, name: str) -> None:
        """Start one, and let it visit a profile twice."""
        server = self._server
        server.calls = 0
        reconciler = Reconciler(
            cluster=server,
            keeper=Keeper(server, "leeway/leeway:test"),
            records=Records(server),
            pods=PodClient(self._session),
            tuner=TunerClient(self._session, "http://127.0.0.1:1"),
        )
        memory = Memory()
        for _ in range(2):
            body = await Server.get(server, path_to("ServingProfile", NAMESPACE, name))
            assert body is not None
            await reconciler.visit(Profile.read(body), memory)

    async def die(self, name: str, call: int, *, answered: bool) -> bool:
        """Start one that visits a profile and dies at a call; returns whether it came to that call."""
        others = asyncio.all_tasks()
        self._server.dies_at, self._server.answered = call, answered
        try:
            await self.live(name)
        except Killed:
            return True
        finally:
            self._server.dies_at = 0
            unfinished = asyncio.all_tasks() - others
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        return False


async def deaths_at_every_call(cluster: Cluster, prefix: str, *, answered: bool) -> int:
    """Have an operator die at its first call, another at its second, and so on, each followed by one that lives on.

    Returns how many died.
    """
    async with (
        MortalServer.session(lambda: log_in(kopf.OperatorSettings())) as server,
        aiohttp.ClientSession() as session,
    ):
        operators = Operators(server, session)
        names = [f"{prefix}-{number}" for number in range(MOST_CALLS)]
        cluster.apply(*map(profile, names), namespace=NAMESPACE)
        await operators.live(names[0])
        wanted = children(cluster, names[0])
        assert len(wanted) == CHILDREN
        for call, name in enumerate(names[1:], 1):
            if not await operators.die(name, call, answered=answered):
                break
            await operators.live(name)
            assert children(cluster, name) == wanted, f"after a death at call {call}"
            assert cluster.get("sp", name, "-n", NAMESPACE)["status"]["observedGeneration"] == 1
    await asyncio.sleep(0.25)  # for TLS connections to be closed
    return call - 1


def children(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return what there is for a profile, without what is each object's own."""
    found = cluster.get(KINDS, "-n", NAMESPACE, "-l", f"leeway.dev/profile={name}")["items"]
    return {f"{item['kind']} {item['metadata']['name'].replace(name, 'NAME')}": known(item, name) for item in found}


def known(item: dict[str, Any], name: str) -> Any:
    content = {key: value for key, value in item.items() if key not in ITS_OWN}
    if item["kind"] == "Secret":
        content["data"] = sorted(item["data"])
    if item["kind"] == "Service":
        content["spec"] = {key: value for key, value in item["spec"].items() if key not in ITS_OWN}
    if "record" in content.get("data", {}):
        record = json.loads(content["data"]["record"])
        assert record.pop("startedAtS") > 0
        content["data"]["record"] = record
    return json.loads(json.dumps(content).replace(name, "NAME"))


@pytest.mark.usefixtures("without_operator")
@pytest.mark.parametrize("answered", [False, True], ids=["call not made", "answer not heard"])
def test_an_operator_that_dies_at_any_call_changes_nothing_about_the_end(cluster: Cluster, answered: bool) -> None:
    deaths = asyncio.run(deaths_at_every_call(cluster, "heard" if answered else "unheard", answered=answered))
    assert CHILDREN < deaths < MOST_CALLS - 1
