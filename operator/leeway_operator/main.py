"""The operator's process."""

import logging
import os
from collections.abc import Collection

import kopf
from leeway_core.errors import UserError

from leeway_operator.crd import GROUP
from leeway_operator.generation import ObservedGeneration
from leeway_operator.handlers import registry
from leeway_operator.metrics import serve_metrics


def settings(*, clusterwide: bool) -> kopf.OperatorSettings:
    """Return kopf's settings: one replica without peering, no call that can hang, nothing kept in annotations but
    the progress of handlers that are retried.
    """
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True
    chosen.scanning.disabled = not clusterwide
    chosen.posting.level = logging.WARNING
    chosen.networking.connect_timeout = 5
    chosen.networking.request_timeout = 30
    chosen.networking.enforce_retry_after = True
    chosen.watching.server_timeout = 600
    chosen.watching.client_timeout = 660
    chosen.queueing.worker_limit = 20
    chosen.persistence.finalizer = f"{GROUP}/operator"
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"operator.{GROUP}")
    chosen.persistence.diffbase_storage = ObservedGeneration()
    return chosen


def run(
    *, namespaces: Collection[str] = (), host: str = "127.0.0.1", liveness_port: int = 8080, metrics_port: int = 9090
) -> None:
    """Serve the profiles of `namespaces`, or of all namespaces when none is named, until told to stop.

    `http://host:liveness_port/healthz` answers while the event loop turns; metrics are on `metrics_port`.
    """
    os.environ.setdefault("USER", "leeway")  # kopf asks who it is, and a pod's user need not have a name
    kopf.configure()
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    clusterwide = not namespaces
    try:
        serve_metrics(host, metrics_port)
    except OSError as error:
        raise UserError(f"The operator cannot listen on {host}:{metrics_port}: {error.strerror}.") from error
    try:
        kopf.run(
            registry=registry(),
            settings=settings(clusterwide=clusterwide),
            clusterwide=clusterwide,
            namespaces=namespaces,
            liveness_endpoint=f"http://{host}:{liveness_port}/healthz",
        )
    except kopf.LoginError as error:
        raise UserError("No Kubernetes to talk to: run in a pod with a service account, or set KUBECONFIG.") from error
    except OSError as error:
        raise UserError(f"The operator cannot go on: {error}") from error
