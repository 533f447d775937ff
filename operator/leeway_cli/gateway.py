"""`leeway gateway`."""

import logging
from pathlib import Path
from typing import Annotated

import typer


def gateway(
    objectives_file: Annotated[Path, typer.Option(help="JSON list of objectives; followed while it changes.")],
    *,
    service: Annotated[
        str | None,
        typer.Option(help="Service of its own namespace whose ready pods take the requests."),
    ] = None,
    pod: Annotated[
        list[str] | None, typer.Option(help="Without Kubernetes: address of an engine pod; may be given again.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port of OpenAI's API.")] = 8000,
    metrics_port: Annotated[int, typer.Option(help="Port of probes and /metrics.")] = 8001,
) -> None:
    """Run a gateway: OpenAI's API before engine pods, counting each request as met or missed."""
    from leeway_core.errors import UserError
    from leeway_gateway.config import GatewayConfig, Service
    from leeway_gateway.run import run

    if bool(service) == bool(pod):
        raise UserError("Name the engine pods either by --service or by --pod.")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    pods = Service(service) if service else tuple(pod or ())
    try:
        run(GatewayConfig(pods, objectives_file, host=host, port=port, metrics_port=metrics_port))
    except (OSError, ValueError) as error:
        raise UserError(f"The gateway cannot start: {error}") from error
