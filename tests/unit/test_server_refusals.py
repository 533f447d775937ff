"""What a client is told when a pod turns its request away."""

import json

import pytest
from leeway_core.headers import PRIORITY_HEADER
from leeway_core.terms import HeaderError, Terms
from leeway_engine.server.errors import api_error, error_response
from leeway_engine.server.token_stream import GenerationError


@pytest.mark.parametrize(
    ("code", "retry_after_s", "status", "header", "kind"),
    [
        ("kv_exceeded", None, 400, None, "invalid_request_error"),
        ("engine_died", None, 500, None, "server_error"),
        ("engine_failed", None, 500, None, "server_error"),
        ("timed_out", None, 408, None, "timeout_error"),
        ("aborted", None, 499, None, "cancelled_error"),
        ("tenant_requests", 2.3, 429, "3", "rate_limit_error"),
        ("queue_delay", 0.1, 429, "1", "rate_limit_error"),
        ("kv_headroom", 7.0, 503, "7", "overloaded_error"),
        ("queue_upstream", 1.2, 503, "2", "overloaded_error"),
        ("deadline_unreachable", 1.0, 503, "1", "overloaded_error"),
    ],
)
def test_a_refusal_says_why_for_programs_and_when_to_come_again(
    code: str, retry_after_s: float | None, status: int, header: str | None, kind: str
) -> None:
    response = error_response(api_error(GenerationError(code, "why", retry_after_s)))
    assert (response.status, response.headers.get("Retry-After")) == (status, header)
    assert isinstance(response.body, bytes)
    error = json.loads(response.body)["error"]
    assert (error["code"], error["type"], error["message"]) == (code, kind, "why")


def test_a_header_without_meaning_is_the_clients_fault_and_named() -> None:
    with pytest.raises(HeaderError) as wrong:
        Terms.of({PRIORITY_HEADER: "high"})
    response = error_response(api_error(wrong.value))
    assert isinstance(response.body, bytes)
    error = json.loads(response.body)["error"]
    assert (response.status, error["type"], error["param"]) == (400, "invalid_request_error", PRIORITY_HEADER)
    assert error["message"] == "the header x-leeway-priority must be a whole number from -100 to 100, not 'high'"
