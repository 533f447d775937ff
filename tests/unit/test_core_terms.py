"""What a request says in headers is taken as it is meant, or refused by the header's name."""

import pytest
from leeway_core.headers import (
    BUDGET_HEADER,
    OBJECTIVE_HEADER,
    PRIORITY_HEADER,
    TENANT_HEADER,
    TIMEOUT_HEADER,
    TOOL_WAIT_HEADER,
)
from leeway_core.terms import HeaderError, Terms


def test_a_request_without_headers_asks_for_nothing() -> None:
    assert Terms.of({}) == Terms(objective=None, tenant="", priority=0, budget_s=None, tool_wait_s=0.0, timeout_s=None)


def test_each_header_has_its_effect() -> None:
    headers = {
        OBJECTIVE_HEADER: "agents",
        TENANT_HEADER: "paying",
        PRIORITY_HEADER: "-7",
        BUDGET_HEADER: "2.5",
        TOOL_WAIT_HEADER: "30",
        TIMEOUT_HEADER: "1.5",
    }
    assert Terms.of(headers) == Terms("agents", "paying", -7, 2.5, 30.0, 1.5)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (TENANT_HEADER, "x" * 128),
        (PRIORITY_HEADER, "100"),
        (PRIORITY_HEADER, "-100"),
        (BUDGET_HEADER, "0"),
        (BUDGET_HEADER, "1e6"),
        (TOOL_WAIT_HEADER, "0"),
        (TOOL_WAIT_HEADER, "600"),
        (TIMEOUT_HEADER, "0.001"),
        (TIMEOUT_HEADER, "1e6"),
    ],
)
def test_the_last_value_that_is_allowed(header: str, value: str) -> None:
    Terms.of({header: value})


@pytest.mark.parametrize(
    ("header", "value", "takes"),
    [
        (TENANT_HEADER, "x" * 129, "a name of at most 128 characters"),
        *((PRIORITY_HEADER, value, "from -100 to 100") for value in ("", "high", "1.5", "101", "-101", "9" * 5000)),
        *((BUDGET_HEADER, value, "seconds, 0 or more") for value in ("", "soon", "-1", "nan", "inf")),
        *((TIMEOUT_HEADER, value, "seconds, more than 0") for value in ("", "soon", "0", "-1", "nan", "inf")),
        *((TOOL_WAIT_HEADER, value, "from 0 to 600") for value in ("", "long", "-1", "nan", "inf", "600.1")),
    ],
)
def test_a_value_without_meaning_is_refused_by_the_headers_name(header: str, value: str, takes: str) -> None:
    with pytest.raises(HeaderError, match=takes) as wrong:
        Terms.of({header: value})
    assert wrong.value.header == header
    assert len(str(wrong.value)) < 300
