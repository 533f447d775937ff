"""Errors of the API in OpenAI's shape."""

import logging
from math import ceil

from aiohttp import web
from aiohttp.typedefs import Handler
from leeway_core.openai_error import ErrorType, openai_error
from leeway_core.terms import HeaderError
from pydantic import ValidationError

from leeway_engine.server.token_stream import BREAKS, GenerationError
from leeway_engine.server.tokenizer import ChatTemplateError

logger = logging.getLogger(__name__)

CALLER_LIMITS = ("tenant_requests", "tenant_tokens", "queue_delay")
"""Codes of admission that ask the caller to slow down; the others advise another pod, or waiting before this one."""

_KINDS: dict[int, ErrorType] = {
    408: "timeout_error",
    429: "rate_limit_error",
    499: "cancelled_error",
    503: "overloaded_error",
}
_BREAK_STATUS = {"timed_out": 408, "aborted": 499}
"""Statuses of requests that broke off for another reason than the pod's failure. No client sends a 499 again."""


class ApiError(Exception):
    """An answer other than the one asked for; `param` names the field at fault and `code` is for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """`status` is the HTTP status."""
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what goes wrong before anything was sent."""
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 (api_error logs what it does not know)
        return error_response(api_error(error))


def api_error(error: Exception) -> ApiError:
    """Return what to tell the client; an error that nobody foresaw is logged."""
    told: ApiError
    match error:
        case ApiError():
            told = error
        case ValidationError():
            told = _invalid(error)
        case HeaderError():
            told = ApiError(400, str(error), param=error.header)
        case ChatTemplateError():
            told = ApiError(400, str(error), param="messages")
        case GenerationError():
            told = ApiError(_status(error), str(error), code=error.code, retry_after_s=error.retry_after_s)
        case web.HTTPRequestEntityTooLarge():
            told = ApiError(413, "the request's body is too large for this server", code="body_too_large")
        case web.HTTPException():
            told = ApiError(error.status, error.reason)
        case _:
            logger.error("a request failed", exc_info=error)
            told = ApiError(500, "the server failed; its log has the cause")
    return told


def rejection_code(error: Exception) -> str | None:
    """Return why a request is refused, empty if only its message says so; None if it did not fail for a refusal."""
    match error:
        case GenerationError():
            return None if error.code in BREAKS else error.code
        case ApiError():
            return error.code or ""
        case ValidationError() | HeaderError() | ChatTemplateError() | web.HTTPException():
            return ""
    return None


def error_response(error: ApiError) -> web.Response:
    """Return an error as a response; one that passes says when to come again."""
    response = web.json_response(error_body(error), status=error.status)
    if error.status in (429, 503):
        response.headers["Retry-After"] = str(ceil(error.retry_after_s or 1))
    if error.status == 408:
        # OpenAI's clients would send it again at once, for as long again.
        response.headers["x-should-retry"] = "false"
    return response


def error_body(error: ApiError) -> dict[str, object]:
    """Return an error as OpenAI's API has it."""
    kind: ErrorType = "invalid_request_error" if error.status < 500 else "server_error"
    kind = _KINDS.get(error.status, kind)
    return openai_error(str(error), kind, error.param, error.code)


def _status(error: GenerationError) -> int:
    """Return 400 for what can never be served, which is the request's fault; 429 where the caller sends too much.

    What broke off has a status of its own, by its cause.
    """
    if error.code in BREAKS:
        return _BREAK_STATUS.get(error.code, 500)
    if error.retry_after_s is None:
        return 400
    return 429 if error.code in CALLER_LIMITS else 503


def _invalid(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False)[0]
    place = [str(step) for step in first["loc"]]
    message = first["msg"].removeprefix("Value error, ")
    return ApiError(400, f"{place[0]}: {message}" if place else message, param=place[0] if place else None)
