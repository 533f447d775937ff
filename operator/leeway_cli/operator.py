"""`leeway operator`."""

from typing import Annotated

import typer

from leeway_cli.options import HostOption


def operator(
    namespace: Annotated[
        list[str] | None,
        typer.Option(help="Serve the profiles of this namespace alone; may be given again. Default: all namespaces."),
    ] = None,
    *,
    image: Annotated[str, typer.Option(help="Leeway's own image, for the pods that profiles need.")] = "leeway/leeway",
    tuner_url: Annotated[str, typer.Option(help="Address of the tuner.")] = "http://127.0.0.1:8081",
    pod_monitors: Annotated[
        bool, typer.Option(help="Make a PodMonitor for each profile, where the Prometheus Operator is installed.")
    ] = True,
    pod_monitor_label: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of a label of the PodMonitors; may be given again.")
    ] = None,
    host: HostOption = "127.0.0.1",
    liveness_port: Annotated[int, typer.Option(help="Port of /healthz.")] = 8080,
    metrics_port: Annotated[int, typer.Option(help="Port of /metrics.")] = 9090,
) -> None:
    """Run the operator: it keeps the children and the status of every ServingProfile."""
    from leeway_operator.main import run

    labels = [label.split("=", 1) for label in pod_monitor_label or ()]
    if wrong := [label for label in labels if len(label) != 2]:
        raise typer.BadParameter(f"{wrong[0][0]!r} must be NAME=VALUE", param_hint="--pod-monitor-label")
    run(
        namespaces=namespace or (),
        image=image,
        tuner_url=tuner_url,
        monitor_labels=dict(labels) if pod_monitors else None,
        host=host,
        liveness_port=liveness_port,
        metrics_port=metrics_port,
    )
