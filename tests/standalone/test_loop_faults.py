"""An operator that dies at any of its calls to the API server leaves nothing that the next one does not put right."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import aiohttp
import kopf
import pytest
from clusters import LEEWAY_IMAGE, Cluster, eventually
from leeway_core.pod_knobs import KnobsReply, PodKnobs
from leeway_core.record import Record
from leeway_operator import pod_client
from leeway_operator.children.secret import token_in
from leeway_operator.cluster import Cluster as Server
from leeway_operator.keeper import Keeper
from leeway_operator.login import log_in
from leeway_operator.memory import Memory
from leeway_operator.names import path_to
from leeway_operator.pod_client import PodClient
from leeway_operator.pod_settings import pod_settings
from leeway_operator.pods import Pod
from leeway_operator.profile import Profile
from leeway_operator.reconciler import Reconciler
from leeway_operator.records import Records
from leeway_operator.tuner_client import TunerClient
from operator_doubles import FakeTuner, Faults
from profiles import START_S, Served, models_claim, profile

NAMESPACE = "loop-faults"
TRIED = "loop-faults-tried"
"""Namespace of the profile that has a pod."""
SYSTEM = "leeway-system"
OPERATOR = "deployment/leeway-operator"
KINDS = "services,configmaps,secrets,serviceaccounts,statefulsets,deployments,roles,rolebindings"
CHILDREN = 11
TRIAL_CALLS = 9
"""Made at least as a trial begins: the record, the pods, a pod's knobs, the decision, whether the profile still stands,
the record again, the push, what came of it, and the status."""
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


class ForwardedPods(PodClient):
    """The knob endpoint of one pod, as a port of this machine leads to it."""

    async def _call(self, method: str, pod: Pod, token: str, content: str | None = None) -> KnobsReply:
        return await super()._call(method, replace(pod, address="127.0.0.1"), token, content)


@pytest.fixture(scope="module")
def without_operator(cluster: Cluster) -> Iterator[None]:
    """Stop the cluster's own operator meanwhile, and have no pods made in one of two namespaces."""
    for namespace in (NAMESPACE, TRIED):
        cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("create", "quota", "no-pods", "--hard=pods=0", "-n", NAMESPACE)
    cluster.kubectl("scale", OPERATOR, "-n", SYSTEM, "--replicas=0")
    operators = ("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")
    eventually(lambda: not cluster.get(*operators)["items"], what="the operator's end")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBECONFIG", str(cluster.state.kubeconfig))
        yield
    cluster.kubectl("delete", "namespace", NAMESPACE, TRIED, "--wait=false")
    cluster.kubectl("scale", OPERATOR, "-n", SYSTEM, "--replicas=1")
    cluster.wait_ready(SYSTEM, OPERATOR)


class Operators:
    """Operators, one after the other."""

    def __init__(self, server: MortalServer, namespace: str, image: str, pods: PodClient, tuner: Any) -> None:
        self._server = server
        self._namespace = namespace
        self._image = image
        self._pods = pods
        self._tuner = tuner

    async def live(self, name: str, visits: int = 2) -> None:
        """Start one, and let it visit a profile some times."""
        server = self._server
        server.calls = 0
        reconciler = Reconciler(
            cluster=server,
            keeper=Keeper(server, self._image),
            records=Records(server),
            pods=self._pods,
            tuner=self._tuner,
        )
        memory = Memory()
        for _ in range(visits):
            body = await Server.get(server, path_to("ServingProfile", self._namespace, name))
            assert body is not None
            await reconciler.visit(Profile.read(body), memory)

    async def die(self, name: str, call: int, *, answered: bool, visits: int = 2) -> bool:
        """Start one that visits a profile and dies at a call; returns whether it came to that call."""
        others = asyncio.all_tasks()
        self._server.dies_at, self._server.answered = call, answered
        try:
            await self.live(name, visits)
        except Killed:
            return True
        finally:
            self._server.dies_at = 0
            unfinished = asyncio.all_tasks() - others
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        return False


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[MortalServer, aiohttp.ClientSession]]:
    """Yield the API server, and a session for all else."""
    async with (
        MortalServer.session(lambda: log_in(kopf.OperatorSettings())) as server,
        aiohttp.ClientSession() as session,
    ):
        yield server, session
    await asyncio.sleep(0.25)  # for TLS connections to be closed


async def deaths_at_every_call(cluster: Cluster, prefix: str, *, answered: bool) -> int:
    """Have an operator die at its first call, another at its second, and so on, each followed by one that lives on.

    Returns how many died.
    """
    async with connected() as (server, session):
        tuner = TunerClient(session, "http://127.0.0.1:1")
        operators = Operators(server, NAMESPACE, "leeway/leeway:test", PodClient(session), tuner)
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


@pytest.fixture(scope="module")
def tried(cluster: Cluster, without_operator: None) -> Iterator[Served]:
    """A profile in mode Auto with a running pod, whose knob endpoint is where an operator in this process finds it."""
    served = Served(cluster, TRIED, "tried")
    models_claim(cluster, TRIED)
    cluster.apply(profile(served.name, mode="Auto", prometheus="http://127.0.0.1:1"), namespace=TRIED)

    async def make() -> None:
        async with connected() as (server, session):
            tuner = TunerClient(session, "http://127.0.0.1:1")
            await Operators(server, TRIED, LEEWAY_IMAGE, PodClient(session), tuner).live(served.name)

    asyncio.run(make())
    (pod,) = served.engines
    eventually(lambda: cluster.kubectl("get", "pod", pod, "-n", TRIED, check=False).returncode == 0, 30, what=pod)
    cluster.wait_ready(TRIED, pod, START_S)
    with cluster.popen("kubectl", "port-forward", "-n", TRIED, f"pod/{pod}", f":{pod_client.KNOBS_PORT}") as forward:
        try:
            said = forward.stdout.readline() if forward.stdout else ""
            assert said.startswith("Forwarding from 127.0.0.1:"), said
            with pytest.MonkeyPatch.context() as ports:
                ports.setattr(pod_client, "KNOBS_PORT", int(said.removeprefix("Forwarding from 127.0.0.1:").split()[0]))
                yield served
        finally:
            forward.kill()


async def deaths_as_a_trial_begins(served: Served, *, answered: bool) -> int:
    """Have an operator die at its first call of a visit that begins a trial, another at its second, and so on.

    Each is followed by one that lives on: it tries the same token budget, and has it promoted. Returns how many died,
    of the calls that they make from the reading of the record to the report of a pod on trial.
    """
    name, (pod,) = served.name, served.engines
    async with connected() as (server, session):
        tuner = FakeTuner(Faults())
        pods = ForwardedPods(session)
        operators = Operators(server, TRIED, LEEWAY_IMAGE, pods, tuner)
        for call in range(1, MOST_CALLS):
            before, tuner.budget = tuner.budget, 64 if tuner.budget == 128 else 128
            died = await operators.die(name, call, answered=answered, visits=1)
            record, _ = await recorded(server, name)
            if not died:
                assert record.trying, "the whole visit begins a trial"
                assert (record.incumbent.token_budget, record.in_force.token_budget) == (before, tuner.budget)
                assert await enforces(server, pods, pod, name, pod_settings(record.in_force, record.policies, 0, 1))
                break
            assert call == 1 or record.incumbent.token_budget == before, f"on record after a death at call {call}"
            await operators.live(name)
            record, boots = await recorded(server, name)
            assert record.candidate is None, f"after a death at call {call}"
            assert record.incumbent.token_budget == tuner.budget, f"after a death at call {call}"
            wanted = pod_settings(record.incumbent, record.policies, 0, 1)
            assert await enforces(server, pods, pod, name, wanted), f"after a death at call {call}"
            assert PodKnobs.model_validate_json(boots[f"{pod}.json"]) == wanted, f"after a death at call {call}"
    return call - 1


async def recorded(server: Server, name: str) -> tuple[Record, dict[str, str]]:
    """Return the record of a profile, and all that its pods boot from."""
    found = await Server.get(server, path_to("ConfigMap", TRIED, f"{name}-knobs"))
    assert found is not None
    return Record.model_validate_json(found["data"]["record"]), found["data"]


async def enforces(server: Server, pods: PodClient, pod: str, name: str, wanted: PodKnobs) -> bool:
    """Tell whether a pod comes to enforce these knobs, which takes it an iteration."""
    found = await Server.get(server, path_to("Pod", TRIED, pod))
    secret = await Server.get(server, path_to("Secret", TRIED, f"{name}-knob-token"))
    assert found is not None
    for _ in range(20):
        reply = await pods.read(Pod.read(found), token_in(secret))
        if reply is not None and reply.enforced == wanted:
            return True
        await asyncio.sleep(0.1)
    return False


@pytest.mark.parametrize("answered", [False, True], ids=["call not made", "answer not heard"])
def test_an_operator_that_dies_as_a_trial_begins_leaves_nothing_of_it(tried: Served, answered: bool) -> None:
    deaths = asyncio.run(deaths_as_a_trial_begins(tried, answered=answered))
    assert TRIAL_CALLS <= deaths < MOST_CALLS - 1
