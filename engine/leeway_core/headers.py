"""The HTTP headers in which a request carries more than OpenAI's API has fields for."""

OBJECTIVE_HEADER = "x-leeway-objective"
"""Name of the objective that the request belongs to; without it, the first objective of the profile holds."""

TENANT_HEADER = "x-leeway-tenant"
"""Who the request is counted for."""

BUDGET_HEADER = "x-leeway-budget"
"""Seconds that are left for the whole answer: of an agent's budget over its steps, or of a completion deadline."""

PRIORITY_HEADER = "x-leeway-priority"
"""Points by which the request goes before others, or behind them, where requests are ranked by points."""

TIMEOUT_HEADER = "x-leeway-timeout-s"
"""Seconds from the request's arrival after which the pod ends it, wherever it is."""

TOOL_WAIT_HEADER = "x-leeway-tool-wait"
"""Seconds for which the answer's KV is kept for a request that goes on from it, as after the call of a tool."""
