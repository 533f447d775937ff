"""The operator's process."""

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import chain, repeat

import kopf
from leeway_core.errors import UserError

from leeway_operator.handlers import CHILDREN, registry
from leeway_operator.keeper import NO_LABELS
from leeway_operator.login import log_in
from leeway_operator.metrics import serve_metrics
from leeway_operator.names import PROFILE_LABEL

DEFAULT_IMAGE = "leeway/leeway"
DEFAULT_TUNER = "http://127.0.0.1:8081"


FIRST_WAITS_S = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0)
LATER_WAITS_S = 20.0
LEAVE_S = 10.0
"""How long the process may take to end.

An error in a watch ends kopf's orchestration, but its other watches log in anew and go on: so the operator would
neither end nor notice anything more. It is killed then, and Kubernetes starts it again.
"""


class Waits:
    """How long kopf waits before each further try of a call that fails.

    It never ends: the operator would end with a watch that kopf has given up, though the API server only restarts.
    """

    def __iter__(self) -> Iterator[float]:
        """Begin anew with the first try."""
        return chain(FIRST_WAITS_S, repeat(LATER_WAITS_S))


def settings(*, clusterwide: bool) -> kopf.OperatorSettings:
    """Return kopf's settings: one replica without peering, no call that can hang, of children only Leeway's own."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True
    chosen.scanning.disabled = not clusterwide
    chosen.posting.level = logging.WARNING
    chosen.networking.connect_timeout = 5
    chosen.networking.request_timeout = 30
    chosen.networking.enforce_retry_after = True
    chosen.networking.error_backoffs = Waits()
    chosen.watching.server_timeout = 600
    chosen.watching.client_timeout = 660
    chosen.queueing.worker_limit = 20
    chosen.process.ultimate_exiting_timeout = LEAVE_S
    for _, plural in CHILDREN:
        chosen.watching.label_selectors[plural] = PROFILE_LABEL
    return chosen


def run(
    *,
    namespaces: Collection[str] = (),
    image: str = DEFAULT_IMAGE,
    tuner_url: str = DEFAULT_TUNER,
    monitor_labels: Mapping[str, str] | None = NO_LABELS,
    host: str = "127.0.0.1",
    liveness_port: int = 8080,
    metrics_port: int = 9090,
) -> None:
    """Serve the profiles of `namespaces`, or of all namespaces when none is named, until told to stop.

    `image` is Leeway's own, for the pods that profiles need, and `tuner_url` the address of its tuner. PodMonitors get
    `monitor_labels`; None makes none.
    `http://host:liveness_port/healthz` answers while the event loop turns; metrics are on `metrics_port`.
    """
    os.environ.setdefault("USER", "leeway")  # kopf asks who it is, and a pod's user need not have a name
    kopf.configure()
    for talkative in ("aiohttp.access", "kopf.objects"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    clusterwide = not namespaces
    try:
        serve_metrics(host, metrics_port)
    except OSError as error:
        raise UserError(f"The operator cannot listen on {host}:{metrics_port}: {error.strerror}.") from error
    chosen = settings(clusterwide=clusterwide)

    try:
        log_in(chosen)
        kopf.run(
            registry=registry(partial(log_in, chosen), image, tuner_url, monitor_labels),
            settings=chosen,
            clusterwide=clusterwide,
            namespaces=namespaces,
            liveness_endpoint=f"http://{host}:{liveness_port}/healthz",
        )
    except kopf.LoginError as error:
        raise UserError("No Kubernetes to talk to: run in a pod with a service account, or set KUBECONFIG.") from error
    except OSError as error:
        raise UserError(f"The operator cannot go on: {error}") from error
