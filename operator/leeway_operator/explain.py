"""Asks for a profile and for the tuner's decisions on it, as a user, through the API server."""

import asyncio
import time
from functools import partial

import kopf
from leeway_core.decision import Decided
from leeway_core.errors import UserError
from pydantic import TypeAdapter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leeway_operator.cluster import ApiError, Cluster
from leeway_operator.explanation import explain, last_decision, present
from leeway_operator.login import log_in
from leeway_operator.names import path_to
from leeway_operator.profile import Profile

_DECISIONS = TypeAdapter(list[Decided])


def run(name: str, namespace: str, limit: int, console: Console) -> None:
    """Print what is seen of a profile, and what was decided on it and why; raises UserError.

    Where the tuner cannot be asked, what the profile's status tells is printed all the same.
    """
    try:
        asyncio.run(_tell(name, namespace, limit, console))
    except kopf.LoginError as error:
        raise UserError("No Kubernetes to talk to: set KUBECONFIG.") from error
    except ApiError as error:
        raise UserError(f"The API server refuses: {error}") from error


async def _tell(name: str, namespace: str, limit: int, console: Console) -> None:
    async with Cluster.session(partial(log_in, kopf.OperatorSettings())) as cluster:
        body = await cluster.get(path_to("ServingProfile", namespace, name))
        if body is None:
            raise UserError(f"There is no profile {name} in namespace {namespace}. `kubectl get sp -A` lists all.")
        profile = Profile.read(body)
        _show_status(profile, console)
        _show_decisions(profile, await _decisions(cluster, profile, limit), console)


async def _decisions(cluster: Cluster, profile: Profile, limit: int) -> list[Decided]:
    if profile.status.tuner is None:
        raise UserError(
            "The profile's status does not say where its tuner is: the operator has not visited it yet, "
            "or its --tuner-url is not the address of a Service."
        )
    namespace, service = profile.status.tuner.split("/")
    # A user may have the right to this one name alone, port and all.
    path = f"{path_to('Service', namespace, service)}:http/proxy/v1/profiles/{profile.uid}/decisions"
    try:
        return _DECISIONS.validate_python(await cluster.ask(path, {"limit": str(limit)}))
    except ApiError as error:
        role = f"{service.removesuffix('-tuner')}-explain"
        hint = f" Ask for a binding to the Role {role} in namespace {namespace}." if error.status == 403 else ""
        raise UserError(f"The tuner cannot be asked what it decided: {error}.{hint}") from error


def _show_status(profile: Profile, console: Console) -> None:
    summary = profile.status.summary or "not visited yet"
    console.print(f"[bold]{profile.namespace}/{profile.name}[/]: {escape(summary)}")
    for line in present(profile):
        console.print(escape(line))


def _show_decisions(profile: Profile, decisions: list[Decided], console: Console) -> None:
    console.print(last_decision(profile, decisions, time.time()))
    if not decisions:
        return
    table = Table("time (UTC)", "decision", "why, and what it rests on", box=None, pad_edge=False)
    for line in explain(decisions):
        table.add_row(line.when, line.action, escape("\n".join((line.why, *(f"  {each}" for each in line.details)))))
    console.print(table)
