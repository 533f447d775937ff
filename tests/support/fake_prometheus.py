"""A Prometheus whose answers a test chooses: run in a pod, it reads from /state/mode what to answer."""

import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

MODE = Path("/state/mode")
PORT = 9090
RATE = 20
STEP_S = 2


class Answers(BaseHTTPRequestHandler):
    """Answers of a Prometheus that scrapes each gateway every two seconds; all requests meet their objective."""

    def do_GET(self) -> None:
        mode = MODE.read_text() if MODE.exists() else "values"
        if mode == "error":
            self._send(503, {"status": "error", "error": "injected"})
            return
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        result = [] if mode == "empty" else series(query["query"], float(query.get("time", time.time())), mode)
        self._send(200, {"status": "success", "data": {"resultType": "matrix", "result": result}})

    def _send(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def series(query: str, at_s: float, mode: str) -> list[dict[str, object]]:
    """Return raw counters of verdicts; queries for anything else have no answer."""
    if not query.startswith("leeway_gateway_verdicts_total"):
        return []
    pods = re.search(r'pod=~"([^"]*)"', query)
    newest = at_s - (120 if mode == "stale" else 1)
    times = [newest - STEP_S * step for step in range(120, -1, -1)]
    result = []
    for pod in (pods.group(1) if pods else "").replace("[.]", ".").split("|"):
        for verdict, rate in (("met", RATE), ("missed", 0)):
            values = [[at, "NaN" if mode == "nan" else str(int(rate * at))] for at in times]
            labels = {"pod": pod, "objective": "chat", "result": verdict, "reason": ""}
            result.append({"metric": labels, "values": values})
    return result


if __name__ == "__main__":
    ThreadingHTTPServer(("", PORT), Answers).serve_forever()
