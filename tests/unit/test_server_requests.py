"""What a client asks for in body and headers is what the engine is asked for."""

from leeway_core.terms import Terms
from leeway_engine.server.api import generation_of
from leeway_engine.server.requests import CompletionBody


def test_the_headers_reach_the_engine() -> None:
    terms = Terms(objective="agents", tenant="paying", priority=-7, budget_s=2.5, tool_wait_s=30.0, timeout_s=9.0)
    body = CompletionBody(model="m", prompt="p", cache_salt="s", tool_schema="v2")
    stops = frozenset({9})
    asked = generation_of(body, terms, (1, 2), 5, request_id="r", stop_token_ids=stops, arrival_s=100.0)
    assert (asked.slo_class, asked.tenant, asked.priority) == ("agents", "paying", -7)
    assert (asked.cache_salt, asked.tool_schema) == ("s", "v2")
    assert (asked.request_id, asked.prompt_token_ids, asked.max_tokens, asked.stop_token_ids) == ("r", (1, 2), 5, {9})
    assert (asked.arrival_s, asked.deadline_s, asked.expires_s, asked.tool_wait_s) == (100.0, 102.5, 109.0, 30.0)


def test_a_request_without_headers_is_of_no_class_and_never_due() -> None:
    body = CompletionBody(model="m", prompt="p")
    asked = generation_of(body, Terms(), (1,), 5, request_id="r", stop_token_ids=frozenset(), arrival_s=1.0)
    assert (asked.slo_class, asked.tenant, asked.priority) == ("", "", 0)
    assert (asked.deadline_s, asked.expires_s, asked.tool_wait_s) == (None, None, 0.0)
