"""The knob endpoint, on a port of its own."""

import hmac
from pathlib import Path

from aiohttp import web
from leeway_core.errors import UserError

from leeway_engine.server.live_knobs import LiveKnobs
from leeway_engine.server.metrics.server_metrics import ServerMetrics

MAX_BODY_BYTES = 16 << 10


def knobs_application(knobs: LiveKnobs, token_file: Path, metrics: ServerMetrics) -> web.Application:
    """Return the application that takes pushes and answers reads of the knobs, for holders of the token."""

    def refuse_stranger(request: web.Request) -> web.Response | None:
        expected = f"Bearer {read_token(token_file)}".encode()
        if hmac.compare_digest(request.headers.get("Authorization", "").encode("utf-8", "replace"), expected):
            return None
        message = "this endpoint wants the header 'Authorization: Bearer TOKEN' with this pod's token"
        return web.json_response({"refusal": message}, status=401, headers={"WWW-Authenticate": "Bearer"})

    async def get(request: web.Request) -> web.Response:
        return refuse_stranger(request) or web.json_response(knobs.read().model_dump(by_alias=True))

    async def put(request: web.Request) -> web.Response:
        response = refuse_stranger(request)
        if response is None:
            status, answer = knobs.push(await request.read())
            response = web.json_response(answer.model_dump(by_alias=True), status=status)
        metrics.knob_pushes.labels(response.status).inc()
        return response

    metrics.knobs_generation.labels("accepted").set_function(lambda: knobs.read().accepted.generation)
    metrics.knobs_generation.labels("enforced").set_function(lambda: knobs.read().enforced.generation)
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes([web.get("/v1/knobs", get), web.put("/v1/knobs", put)])
    return app


def read_token(file: Path) -> str:
    """Return the token; an empty one would let everybody in."""
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; it must hold the bearer token of the knob endpoint") from error
    if not token:
        raise UserError(f"{file} is empty; it must hold the bearer token of the knob endpoint")
    return token
