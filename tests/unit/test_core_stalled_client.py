"""A client that takes nothing is cut off, and a slow one is not."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from leeway_core.stalled_client import send

HOST = "127.0.0.1"
PIECE = b"x" * 100_000

Sent = tuple[int, bool, float]
Client = Callable[[asyncio.StreamReader], Awaitable[None]]


class Drained:
    """Bytes to a client, each write of which waits for the client to take them."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)
        self._writer = writer

    async def write(self, data: bytes, /) -> None:
        self._writer.write(data)
        await self._writer.drain()


def sent_to(client: Client, pieces: int, longest_s: float) -> Sent:
    """Send pieces to a client: how many it took, whether its connection was left, and seconds until then."""

    async def run() -> Sent:
        done = asyncio.get_running_loop().create_future()

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken, started_s = 0, time.monotonic()
            try:
                for _piece in range(pieces):
                    await send(Drained(writer), PIECE, writer.transport, longest_s)
                    taken += 1
            except ConnectionResetError:
                pass
            done.set_result((taken, not writer.transport.is_closing(), time.monotonic() - started_s))
            writer.close()

        server = await asyncio.start_server(answer, HOST, 0)
        async with server:
            reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1], limit=1000)
            reading = asyncio.ensure_future(client(reader))
            outcome: Sent = await asyncio.wait_for(done, 120)
            await reading
            writer.close()
            return outcome

    return asyncio.run(run())


async def takes_nothing(_: asyncio.StreamReader) -> None:
    return None


async def reads_slowly(reader: asyncio.StreamReader) -> None:
    while True:
        if not await reader.read(100_000):
            return
        await asyncio.sleep(0.015)


def test_a_client_that_takes_nothing_loses_its_connection() -> None:
    taken, left, seconds = sent_to(takes_nothing, pieces=1000, longest_s=0.2)
    assert taken < 1000
    assert not left
    assert seconds >= 0.2


def test_a_slow_client_gets_all_however_long_it_takes_altogether() -> None:
    taken, left, seconds = sent_to(reads_slowly, pieces=150, longest_s=1.0)
    assert (taken, left) == (150, True)
    assert seconds > 1.0


def test_a_client_that_is_gone_already_is_told_of_in_the_same_way() -> None:
    class Stuck:
        async def write(self, data: bytes, /) -> None:
            await asyncio.sleep(60)

    with pytest.raises(ConnectionResetError, match="takes nothing"):
        asyncio.run(send(Stuck(), b"x", None, 0.01))
