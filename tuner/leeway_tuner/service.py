"""The tuner's HTTP interface."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from leeway_core.decision import Decided, Decision, SequenceBehind
from leeway_core.snapshot import Snapshot
from sqlalchemy.exc import SQLAlchemyError

from leeway_tuner.metrics import DECIDING, DECISIONS
from leeway_tuner.tuner import SequenceBehindError, Tuner


def check_writable(data_dir: Path) -> None:
    """Raise OSError unless a file can be written to `data_dir` now."""
    with tempfile.TemporaryFile(dir=data_dir) as probe:
        probe.write(b"leeway")


def service(data_dir: Path, tuner: Tuner) -> FastAPI:
    """Return the application of a tuner that keeps its studies in `data_dir`."""
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

    @app.post("/v1/decide", responses={409: {"model": SequenceBehind}})
    def decide(snapshot: Snapshot) -> Decision:
        """Decide on a Snapshot. Asking again with the same one changes nothing."""
        with DECIDING.time():
            decision = tuner.decide(snapshot)
        DECISIONS.labels(decision.action).inc()
        return decision

    @app.get("/v1/profiles/{uid}/decisions")
    def decisions(uid: str, limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> list[Decided]:
        """Return the last decisions on a profile and what they rest on, newest first."""
        return tuner.decisions(uid, limit)

    @app.exception_handler(RequestValidationError)
    def senseless(_: Request, error: RequestValidationError) -> JSONResponse:
        """Say what is wrong without the value, which as NaN would have no place in JSON."""
        return JSONResponse({"detail": [{"loc": each["loc"], "msg": each["msg"]} for each in error.errors()]}, 422)

    @app.exception_handler(SequenceBehindError)
    def behind(_: Request, error: SequenceBehindError) -> JSONResponse:
        body = SequenceBehind(last_sequence=error.last_sequence, message=str(error))
        return JSONResponse(body.model_dump(by_alias=True), 409)

    @app.exception_handler(SQLAlchemyError)
    def unrecorded(_: Request, error: SQLAlchemyError) -> JSONResponse:
        return JSONResponse({"detail": f"nothing can be recorded in {data_dir}: {error}"}, 503)

    return app
