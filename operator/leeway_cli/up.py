"""`leeway up`."""

from pathlib import Path
from typing import Annotated

import typer

from leeway_cli.options import StateOption


def up(  # noqa: PLR0917 - each is an option of its own
    manifests: Annotated[
        list[Path] | None,
        typer.Argument(help="Manifests to apply once it runs, such as a ServingProfile.", exists=True, dir_okay=False),
    ] = None,
    state: StateOption = None,
    api_port: Annotated[int | None, typer.Option(help="Host port of the API server; 0 takes a free one.")] = None,
    gateway_port: Annotated[int | None, typer.Option(help="Host port of the gateway; 0 takes a free one.")] = None,
    prometheus_port: Annotated[int | None, typer.Option(help="Host port of Prometheus; 0 takes a free one.")] = None,
    values: Annotated[
        list[Path] | None,
        typer.Option("--values", help="Values file for Leeway's Helm chart.", exists=True, dir_okay=False),
    ] = None,
) -> None:
    """Start a whole Kubernetes on this machine, without root or containers, with Leeway installed."""
    from leeway_standalone import console

    console.up(
        state=state,
        api_port=api_port,
        gateway_port=gateway_port,
        prometheus_port=prometheus_port,
        manifests=manifests or [],
        chart_values=values or [],
    )
