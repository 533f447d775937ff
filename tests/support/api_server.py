"""An API server on loopback whose answers a test writes."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """One call."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    content: Any


Answer = Callable[[Asked], tuple[int, Any]]
"""Status and content: text as it is, an iterator as events of a watch, anything else as JSON."""


@dataclass
class ApiServer:
    """Where it is, and the calls so far."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    def kubeconfig(self, file: Path) -> Path:
        """Write the kubeconfig of a user of this server."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "only",
            "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
            "clusters": [{"name": "only", "cluster": {"server": self.url}}],
            "users": [{"name": "only", "user": {"token": "t"}}],
        }
        file.write_text(json.dumps(content))
        return file


def failure(status: int, message: str) -> tuple[int, Any]:
    """Answer as an API server does that refuses."""
    return status, {"kind": "Status", "status": "Failure", "code": status, "message": message}


@contextmanager
def api_server(answer: Answer) -> Iterator[ApiServer]:
    """Serve until the end of the block."""
    server = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            url, length = urlsplit(self.path), int(self.headers.get("Content-Length", 0))
            content = json.loads(self.rfile.read(length)) if length else None
            asked = Asked(self.command, url.path, dict(parse_qsl(url.query)), dict(self.headers), content)
            server.asked.append(asked)
            status, body = answer(asked)
            if isinstance(body, Iterator):
                self._stream(body)
                return
            kind, data = ("text/plain", body.encode()) if isinstance(body, str) else ("application/json", _dump(body))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(ConnectionError):  # of a client that waits no longer
                self.wfile.write(data)

        def _stream(self, events: Iterator[Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            with suppress(ConnectionError):
                for event in events:
                    self.wfile.write(_dump(event) + b"\n")
            self.close_connection = True

        do_GET = do_PATCH = do_POST = _answer  # noqa: N815 (the library's names)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        http.block_on_close = False
        server.url = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            http.shutdown()


def _dump(content: Any) -> bytes:
    return json.dumps(content).encode()
