"""The tuner's process."""

from contextlib import closing
from pathlib import Path

import uvicorn
from leeway_core.errors import UserError

from leeway_tuner.metrics import serve_metrics
from leeway_tuner.service import check_writable, service
from leeway_tuner.tuner import Tuner


def run(
    *,
    host: str = "127.0.0.1",
    port: int = 8081,
    metrics_port: int = 9091,
    data_dir: Path = Path("/var/lib/leeway"),
) -> None:
    """Serve until told to stop; studies are kept in `data_dir`, which must exist."""
    try:
        check_writable(data_dir)
    except OSError as error:
        raise UserError(
            f"The data folder {data_dir} cannot be used: {error.strerror}. Make it, or name another."
        ) from error
    try:
        serve_metrics(host, metrics_port)
    except OSError as error:
        raise UserError(f"The tuner cannot listen on {host}:{metrics_port}: {error.strerror}.") from error
    with closing(Tuner(data_dir)) as tuner:
        uvicorn.run(service(data_dir, tuner), host=host, port=port, access_log=False)
