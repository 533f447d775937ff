"""How the keeper is asked: one connection, one line of JSON there, one back."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any


class KeeperError(RuntimeError):
    """The keeper could not do what was asked; the message says why."""


async def ask(path: Path, operation: str, **arguments: Any) -> dict[str, Any]:
    """Ask and wait for the answer without blocking the event loop."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise KeeperError(f"the container runtime's keeper does not answer: {error}") from None
    try:
        writer.write(_request(operation, arguments))
        return _answer(await reader.read())
    finally:
        writer.close()


def ask_now(path: Path, operation: str, **arguments: Any) -> dict[str, Any]:
    """Ask and block until the answer is there."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(_request(operation, arguments))
        with connection.makefile("rb") as stream:
            return _answer(stream.read())


def _request(operation: str, arguments: dict[str, Any]) -> bytes:
    return json.dumps({"operation": operation, **arguments}).encode() + b"\n"


def _answer(line: bytes) -> dict[str, Any]:
    if not line:
        raise KeeperError("the container runtime's keeper ended before it answered")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise KeeperError(answer["error"])
    return answer
