"""Readings from a real Prometheus: what is missing is never taken for a number."""

import http.server
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from leeway_core.objective import Objective
from leeway_core.reading import Error, Idle, Missing, Outdated, Reading, Stale, TooFewSamples, Value
from leeway_core.snapshot import Telemetry
from leeway_core.verdict import Timeline
from leeway_gateway.metrics import GatewayMetrics
from leeway_operator.telemetry import Scope, read
from leeway_standalone.binaries import ensure
from prometheus_client import generate_latest
from serving import HOST, free_port

CHAT = Objective(name="chat", ttft_ms=1000, itl_ms=100)
DIGEST = "digest-of-chat"
SCRAPE_S = 0.4
GATEWAYS = 13


class Gateway:
    """What a gateway exposes; a restart begins all counters again at 0."""

    def __init__(self, pod: str) -> None:
        self.scope = Scope("shop", frozenset({pod}), ("chat",))
        self.replaced: bytes | None = None
        self.start()

    def start(self) -> None:
        self._metrics = GatewayMetrics()
        self._metrics.expect([CHAT], DIGEST)

    def obey(self, digest: str) -> None:
        self._metrics.expect([CHAT], digest)

    def serve(self, met: int, missed: int = 0) -> None:
        for _ in range(met):
            self._metrics.count(CHAT, Timeline(0.0, [0.5, 0.55, 0.6], 0.6, "finished"))
        for _ in range(missed):
            self._metrics.count(CHAT, Timeline(0.0, [2.0, 2.05], 2.05, "finished"))

    def text(self) -> bytes:
        return generate_latest(self._metrics.registry) if self.replaced is None else self.replaced


@dataclass(frozen=True)
class Scraped:
    """A gateway of its own for each test, and the Prometheus that scrapes it."""

    url: str
    gateway: Gateway

    def read(self, from_s: float, scope: Scope | None = None) -> Telemetry:
        return read(self.url, scope or self.gateway.scope, DIGEST, from_s, time.time())

    def until(self, kind: type[Reading], from_s: float) -> Telemetry:
        deadline_s = time.monotonic() + 30
        while not isinstance((telemetry := self.read(from_s)).attainment, kind):
            assert time.monotonic() < deadline_s, telemetry
            time.sleep(SCRAPE_S)
        return telemetry


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Scraped]]:
    gateways = {f"/{number}": Gateway(f"gateway.{number}") for number in range(GATEWAYS)}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = gateways[self.path].text()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as exposition:
        threading.Thread(target=exposition.serve_forever, daemon=True).start()
        labels = [
            {"namespace": "shop", "pod": next(iter(gateway.scope.pods)), "__metrics_path__": path}
            for path, gateway in gateways.items()
        ]
        targets = [{"targets": [f"{HOST}:{exposition.server_port}"], "labels": each} for each in labels]
        interval = f"{SCRAPE_S * 1e3:.0f}ms"
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [{"job_name": "pods", "static_configs": targets}],
        }
        folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
        (folder / "prometheus.yml").write_text(json.dumps(config))
        command = [
            ensure(["prometheus"])["prometheus"],
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={HOST}:{port}",
            "--log.level=error",
        ]
        with subprocess.Popen(command) as prometheus:
            try:
                yield (Scraped(f"http://{HOST}:{port}", gateway) for gateway in gateways.values())
            finally:
                prometheus.kill()
                exposition.shutdown()


@pytest.fixture
def scraped(fresh: Iterator[Scraped]) -> Scraped:
    mine = next(fresh)
    mine.until(Idle, time.time() - 5)
    return mine


def test_a_window_counts_what_ended_in_it_alone(scraped: Scraped) -> None:
    scraped.gateway.serve(met=50)
    scraped.until(Value, time.time() - 5)
    start_s = time.time()
    time.sleep(3 * SCRAPE_S)
    scraped.gateway.serve(met=6, missed=2)
    telemetry = scraped.until(Value, start_s)
    assert isinstance(telemetry.attainment, Value)
    assert (telemetry.attainment.value, telemetry.attainment.samples) == (0.75, 8)
    assert telemetry.objectives == {"chat": telemetry.attainment}
    assert telemetry.missed == {"ttft": 2}
    assert isinstance(telemetry.goodput_rps, Value)
    assert telemetry.goodput_rps.value == pytest.approx(6 / telemetry.span_s)
    assert telemetry.attainment.age_s < 3 * SCRAPE_S
    assert isinstance(telemetry.ttft_s["chat"], Value)
    assert isinstance(telemetry.itl_s["chat"], Value)
    assert 0.02 < telemetry.itl_s["chat"].value < 0.1


def test_no_traffic_is_idle_and_a_little_is_too_little(scraped: Scraped) -> None:
    start_s = time.time()
    assert isinstance(scraped.read(start_s).attainment, TooFewSamples), "the window has only begun"
    telemetry = scraped.until(Idle, start_s)
    assert isinstance(telemetry.goodput_rps, Idle)
    assert isinstance(telemetry.ttft_s["chat"], Idle), "a quantile of nothing is NaN"
    scraped.gateway.serve(met=4)
    attainment = scraped.until(TooFewSamples, start_s).attainment
    assert isinstance(attainment, TooFewSamples)
    assert attainment.samples == 4


def test_a_restarted_gateway_counts_on_from_zero(scraped: Scraped) -> None:
    scraped.gateway.serve(met=100)
    scraped.until(Value, time.time() - 5)
    start_s = time.time()
    time.sleep(3 * SCRAPE_S)
    scraped.gateway.start()
    scraped.gateway.serve(met=7, missed=3)
    telemetry = scraped.until(Value, start_s)
    assert isinstance(telemetry.attainment, Value)
    assert (telemetry.attainment.value, telemetry.attainment.samples) == (0.7, 10)


def test_series_of_a_dead_pod_are_not_those_of_its_successor(scraped: Scraped) -> None:
    start_s = time.time()
    scraped.gateway.serve(met=10)
    scraped.until(Value, start_s - 2)
    dead = scraped.gateway.scope.pods
    successor = Scope("shop", frozenset({"gateway.new"}), ("chat",))
    assert isinstance(scraped.read(start_s - 2, successor).attainment, Missing)
    both = Scope("shop", dead | successor.pods, ("chat",))
    assert isinstance(scraped.read(start_s - 2, both).attainment, Missing), "one silent pod is not left out in silence"
    elsewhere = Scope("other", dead, ("chat",))
    assert isinstance(scraped.read(start_s - 2, elsewhere).attainment, Missing)


def test_verdicts_count_from_when_the_gateway_judges_by_the_objectives(scraped: Scraped) -> None:
    changed_s = time.time()
    scraped.gateway.obey("digest-of-former")
    scraped.gateway.serve(met=50)
    telemetry = scraped.until(Outdated, changed_s - 5)
    assert telemetry.attainment == Outdated(pods=tuple(scraped.gateway.scope.pods))
    assert isinstance(telemetry.ttft_s["chat"], Value), "latencies are what they are"
    time.sleep(3 * SCRAPE_S)
    scraped.gateway.obey(DIGEST)
    scraped.until(Idle, changed_s - 5)
    scraped.gateway.serve(met=6, missed=2)
    telemetry = scraped.until(Value, changed_s - 5)
    assert isinstance(telemetry.attainment, Value)
    assert (telemetry.attainment.value, telemetry.attainment.samples) == (0.75, 8)


def test_an_objective_without_series_is_missing(scraped: Scraped) -> None:
    start_s = time.time()
    scraped.gateway.serve(met=10)
    scraped.until(Value, start_s - 2)
    telemetry = scraped.read(start_s - 2, Scope("shop", scraped.gateway.scope.pods, ("chat", "documents")))
    assert isinstance(telemetry.objectives["chat"], Value)
    assert isinstance(telemetry.objectives["documents"], Missing)
    assert isinstance(telemetry.attainment, Missing)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-3"])
def test_what_no_counter_can_be_is_an_error(scraped: Scraped, value: str) -> None:
    scraped.gateway.replaced = (
        f'leeway_gateway_verdicts_total{{objective="chat",result="met",reason=""}} {value}\n'.encode()
    )
    telemetry = scraped.until(Error, time.time())
    assert isinstance(telemetry.attainment, Error)
    assert "verdicts of objective chat is no number" in telemetry.attainment.message


def test_a_gateway_that_exposes_nothing_is_stale_and_then_missing(scraped: Scraped) -> None:
    start_s = time.time()
    scraped.gateway.replaced = b""
    telemetry = scraped.until(Stale, start_s)
    assert isinstance(telemetry.goodput_rps, Stale)
    assert isinstance(telemetry.itl_s["chat"], Stale)
    assert isinstance(
        read(scraped.url, scraped.gateway.scope, DIGEST, start_s + 1000, start_s + 1000).attainment, Missing
    )


def test_prometheus_down_is_an_error_that_says_where() -> None:
    url, started_s = f"http://{HOST}:{free_port()}", time.monotonic()
    telemetry = read(url, Scope("shop", frozenset({"gateway"}), ("chat",)), DIGEST, 0, time.time())
    assert time.monotonic() - started_s < 2
    assert isinstance(telemetry.attainment, Error)
    assert telemetry.attainment.message == f"No Prometheus answers at {url}: [Errno 111] Connection refused"
    assert telemetry.objectives == {"chat": telemetry.attainment}


def test_something_else_at_the_address_is_an_error(scraped: Scraped) -> None:
    telemetry = read(f"{scraped.url}/wrong", scraped.gateway.scope, DIGEST, 0, time.time())
    assert isinstance(telemetry.attainment, Error)
    assert "refuses the query: HTTP Status Code 404" in telemetry.attainment.message
