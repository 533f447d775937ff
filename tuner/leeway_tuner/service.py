"""The tuner's HTTP interface."""

import tempfile
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException


def check_writable(data_dir: Path) -> None:
    """Raise OSError unless a file can be written to `data_dir` now."""
    with tempfile.TemporaryFile(dir=data_dir) as probe:
        probe.write(b"leeway")


def service(data_dir: Path) -> FastAPI:
    """Return the application that keeps its studies in `data_dir`."""
    app = FastAPI(title="Leeway tuner", docs_url=None, redoc_url=None)

    @app.get("/healthz")
    async def live() -> dict[str, Any]:
        """Answer while the process serves."""
        return {"status": "ok"}

    @app.get("/readyz")
    def ready() -> dict[str, Any]:
        """Answer 200 while studies can be recorded, else 503 and why not."""
        try:
            check_writable(data_dir)
        except OSError as error:
            raise HTTPException(503, f"the data folder {data_dir} cannot be written: {error.strerror}") from error
        return {"status": "ok"}

    return app
