"""Errors in the shape of OpenAI's API: the gateway's own, and what pods' say."""

import json

import msgspec
from aiohttp import web
from leeway_core.openai_error import ErrorType, openai_error


class _Error(msgspec.Struct):
    message: str
    code: str | None = None


class _ErrorBody(msgspec.Struct):
    error: _Error


_decode = msgspec.json.Decoder(_ErrorBody).decode


def error(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    retry_after_s: int | None = None,
) -> web.StreamResponse:
    """Return a response that says why there is no other."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if status == 408:
        headers["x-should-retry"] = "false"  # OpenAI's clients would send it again at once
    return web.json_response(openai_error(message, _kind(status), param, code), status=status, headers=headers)


def error_event(message: str) -> bytes:
    """Return the event that ends a stream whose pod is gone, so that it does not look like a whole answer."""
    return b"data: " + json.dumps(openai_error(message, "server_error", code="pod_lost")).encode() + b"\n\n"


def reason_of(body: bytes) -> str | None:
    """Return the code of an error that a pod answered, empty if only its message says why; None if nothing does."""
    try:
        return _decode(body).error.code or ""
    except msgspec.DecodeError:
        return None


def _kind(status: int) -> ErrorType:
    if status == 503:
        return "overloaded_error"
    if status == 408:
        return "timeout_error"
    return "invalid_request_error" if status < 500 else "server_error"
