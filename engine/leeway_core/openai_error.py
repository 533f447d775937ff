"""Errors in the shape of OpenAI's API."""

from typing import Any, Literal

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "timeout_error",
    "rate_limit_error",
    "cancelled_error",
    "overloaded_error",
    "server_error",
]


def openai_error(message: str, kind: ErrorType, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error; `param` names the field at fault and `code` is for programs."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
