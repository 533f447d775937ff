"""Cuts off a client that takes nothing of its answer, so that what it holds becomes free."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol


class Answer(Protocol):
    """An answer that is being sent."""

    def write(self, data: bytes, /) -> Awaitable[None]:
        """Send, and wait until there is room for more."""


async def send(answer: Answer, data: bytes, transport: asyncio.WriteTransport | None, longest_s: float) -> None:
    """Send a piece of an answer.

    A client that takes nothing for `longest_s` seconds loses its connection, `transport`: raises ConnectionResetError.
    """
    try:
        async with asyncio.timeout(longest_s):
            await answer.write(data)
    except TimeoutError:
        if transport is not None:
            transport.abort()
        raise ConnectionResetError("the client takes nothing") from None
