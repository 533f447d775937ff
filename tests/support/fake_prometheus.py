"""A Prometheus whose answers a test chooses: run in a pod, it reads from /state/mode what to answer."""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

MODE = Path("/state/mode")
PORT = 9090
RATE = 20
STEP_S = 2
CHANGED_S = 30
"""How long ago gateways began to judge by the present objectives in mode `changed`."""


class Answers(BaseHTTPRequestHandler):
    """Answers of a Prometheus that scrapes each gateway every two seconds; all requests meet their objective.

    The gateways judge by the objectives of `digest`: in mode `former` not yet, and in mode `changed` not for long.
    """

    digest = sys.argv[-1]

    def do_GET(self) -> None:
        mode = MODE.read_text() if MODE.exists() else "values"
        if mode == "error":
            self._send(503, {"status": "error", "error": "injected"})
            return
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        result = [] if mode == "empty" else self._series(query["query"], float(query["time"]), mode)
        self._send(200, {"status": "success", "data": {"resultType": "matrix", "result": result}})

    def _series(self, query: str, at_s: float, mode: str) -> list[dict[str, object]]:
        if query.startswith("leeway_gateway_verdicts_total"):
            return verdicts(query, at_s, mode)
        if query.startswith("leeway_gateway_objectives_info"):
            return objectives(query, at_s, mode, self.digest)
        return []

    def _send(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def pods_of(query: str) -> list[str]:
    """Return the pods that a query asks for."""
    pods = re.search(r'pod=~"([^"]*)"', query)
    return (pods.group(1) if pods else "").replace("[.]", ".").split("|")


def scrapes(at_s: float, mode: str) -> list[float]:
    """Return the times of all scrapes."""
    newest = at_s - (120 if mode == "stale" else 1)
    return [newest - STEP_S * step for step in range(120, -1, -1)]


def objectives(query: str, at_s: float, mode: str, digest: str) -> list[dict[str, object]]:
    """Return by which objectives gateways judge, and judged."""
    since_s = {"former": at_s, "changed": at_s - CHANGED_S}.get(mode, 0)
    result = []
    for pod in pods_of(query):
        for shown, times in (
            ("former", [at for at in scrapes(at_s, mode) if at < since_s]),
            (digest, [at for at in scrapes(at_s, mode) if at >= since_s]),
        ):
            if times:
                result.append({"metric": {"pod": pod, "digest": shown}, "values": [[at, "1"] for at in times]})
    return result


def verdicts(query: str, at_s: float, mode: str) -> list[dict[str, object]]:
    """Return raw counters of verdicts."""
    result = []
    for pod in pods_of(query):
        for verdict, rate in (("met", RATE), ("missed", 0)):
            values = [[at, "NaN" if mode == "nan" else str(int(rate * at))] for at in scrapes(at_s, mode)]
            labels = {"pod": pod, "objective": "chat", "result": verdict, "reason": ""}
            result.append({"metric": labels, "values": values})
    return result


if __name__ == "__main__":
    ThreadingHTTPServer(("", PORT), Answers).serve_forever()
