"""What a client is told when a pod turns its request away, and how it tells the time it has."""

import json

import pytest
from leeway_engine.server.budget import deadline_s
from leeway_engine.server.errors import ApiError, api_error, error_response
from leeway_engine.server.token_stream import GenerationError


@pytest.mark.parametrize(
    ("code", "retry_after_s", "status", "header", "kind"),
    [
        ("kv_exceeded", None, 400, None, "invalid_request_error"),
        ("engine_died", None, 500, None, "server_error"),
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


@pytest.mark.parametrize(("budget", "deadline"), [(None, None), ("0", 5.0), ("2.5", 7.5)])
def test_the_time_left_makes_a_deadline(budget: str | None, deadline: float | None) -> None:
    assert deadline_s(budget, 5.0) == deadline


@pytest.mark.parametrize("budget", ["", "soon", "-1", "nan", "inf"])
def test_a_senseless_budget_is_the_clients_fault(budget: str) -> None:
    with pytest.raises(ApiError, match="must be seconds") as error:
        deadline_s(budget, 5.0)
    assert error.value.status == 400
