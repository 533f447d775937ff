"""Asks Prometheus, with a limit on every wait and the instant named."""

from typing import Any

from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from leeway_operator.telemetry.series import Series

_CONNECT_S, _ANSWER_S = 2.0, 4.0


class PrometheusError(Exception):
    """Prometheus could not be asked, or its answer made no sense; the message says what to look at."""


def ask(url: str, *expressions: str, at_s: float) -> list[list[Series]]:
    """Return the series that each expression has at an instant; raises PrometheusError.

    A query that fails is not repeated: whoever asks periodically asks again anyway.
    """
    url = url.rstrip("/")
    limits: Any = (_CONNECT_S, _ANSWER_S)
    parameters = {"time": f"{at_s:.3f}", "timeout": f"{_ANSWER_S:g}s"}
    try:
        with PrometheusConnect(url, retry=Retry(total=0)) as client:
            answers = [client.custom_query(expression, parameters, limits) for expression in expressions]
        return [[Series.of(entry) for entry in answer] for answer in answers]
    except PrometheusApiClientException as error:
        raise PrometheusError(f"Prometheus at {url} refuses the query: {error}") from error
    except OSError as error:
        raise PrometheusError(f"No Prometheus answers at {url}: {_root(error)}") from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise PrometheusError(f"What answers at {url} is not Prometheus' API: {error!r}") from error


def _root(error: BaseException) -> str:
    while error.__context__ is not None:
        error = error.__context__
    return str(error) or type(error).__name__
