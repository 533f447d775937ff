"""Asks for a profile and for the tuner's decisions on it, as a user, through the API server."""

import asyncio
from functools import partial

import kopf
from leeway_core.decision import Decided
from leeway_core.errors import UserError
from pydantic import TypeAdapter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leeway_operator.cluster import ApiError, Cluster
from leeway_operator.explanation import explain, words
from leeway_operator.login import log_in
from leeway_operator.names import path_to
from leeway_operator.profile import Profile

_DECISIONS = TypeAdapter(list[Decided])
_TUNER = "app.kubernetes.io/name=leeway,app.kubernetes.io/component=tuner"


def run(name: str, namespace: str, limit: int, console: Console) -> None:
    """Print what was decided on a profile, and why; raises UserError."""
    try:
        profile, decisions = asyncio.run(_ask(name, namespace, limit))
    except kopf.LoginError as error:
        raise UserError("No Kubernetes to talk to: set KUBECONFIG.") from error
    except ApiError as error:
        raise UserError(f"The API server refuses: {error}") from error
    _show(profile, decisions, console)


async def _ask(name: str, namespace: str, limit: int) -> tuple[Profile, list[Decided]]:
    async with Cluster.session(partial(log_in, kopf.OperatorSettings())) as cluster:
        body = await cluster.get(path_to("ServingProfile", namespace, name))
        if body is None:
            raise UserError(f"There is no profile {name} in namespace {namespace}. `kubectl get sp -A` lists all.")
        tuners = await cluster.items("/api/v1/services", labels=_TUNER)
        if not tuners:
            raise UserError("There is no tuner here: is Leeway's chart installed?")
        tuner = tuners[0]["metadata"]
        service = f"/api/v1/namespaces/{tuner['namespace']}/services/{tuner['name']}:http/proxy"
        path = f"{service}/v1/profiles/{body['metadata']['uid']}/decisions"
        return Profile.read(body), _DECISIONS.validate_python(await cluster.ask(path, {"limit": str(limit)}))


def _show(profile: Profile, decisions: list[Decided], console: Console) -> None:
    status = profile.status
    console.print(f"[bold]{profile.namespace}/{profile.name}[/]: {escape(status.summary or 'not visited yet')}")
    if status.knobs is not None:
        knobs = status.knobs.desired.model_dump(exclude={"generation"})
        console.print("knobs: " + ", ".join(f"{name} {value}" for name, value in knobs.items()))
    if not decisions:
        console.print(f"The tuner has decided nothing: mode is {profile.spec.tuning.mode}.")
        return
    latest = decisions[0].snapshot.telemetry.objectives
    console.print("objectives: " + escape(", ".join(f"{name} {words(reading)}" for name, reading in latest.items())))
    table = Table("time (UTC)", "decision", "why, and what it rests on", box=None, pad_edge=False)
    for line in explain(decisions):
        table.add_row(line.when, line.action, escape("\n".join((line.why, *(f"  {each}" for each in line.details)))))
    console.print(table)
