"""The gateway's own errors, in the shape of OpenAI's API."""

import json

from aiohttp import web
from leeway_core.openai_error import ErrorType, openai_error


def error(
    status: int, message: str, *, param: str | None = None, retry_after_s: int | None = None
) -> web.StreamResponse:
    """Return a response that says why there is no other."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return web.json_response(openai_error(message, _kind(status), param), status=status, headers=headers)


def error_event(message: str) -> bytes:
    """Return the event that ends a stream whose pod is gone, so that it does not look like a whole answer."""
    return b"data: " + json.dumps(openai_error(message, "server_error", code="pod_lost")).encode() + b"\n\n"


def _kind(status: int) -> ErrorType:
    if status == 503:
        return "overloaded_error"
    return "invalid_request_error" if status < 500 else "server_error"
