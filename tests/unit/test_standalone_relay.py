"""The relay carries bytes both ways, passes an end on, and answers when there is nothing behind it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from leeway_standalone.relay import NO_GATEWAY, fixed, serve


def listener() -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    found.listen()
    return found


async def talk(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return answer


async def behind(answer: Callable[[bytes], Awaitable[bytes]]) -> tuple[asyncio.Server, int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await answer(await reader.read()))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def test_bytes_pass_both_ways_in_full() -> None:
    async def run() -> None:
        async def reverse(data: bytes) -> bytes:
            return data[::-1]

        server, port = await behind(reverse)
        outer = listener()
        async with server, await serve(outer, fixed("127.0.0.1", port)):
            data = bytes(range(256)) * 10_000
            answers = await asyncio.gather(*(talk(outer.getsockname()[1], data) for _ in range(5)))
        assert answers == [data[::-1]] * 5

    asyncio.run(run())


def test_without_a_target_the_client_is_told_why() -> None:
    async def nowhere() -> tuple[str, int]:
        raise LookupError

    async def run() -> None:
        outer = listener()
        async with await serve(outer, nowhere, NO_GATEWAY):
            answer = await talk(outer.getsockname()[1], b"GET / HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"ServingProfile" in answer

    asyncio.run(run())


def test_a_target_that_refuses_ends_the_connection() -> None:
    async def run() -> None:
        with listener() as closed:
            port = closed.getsockname()[1]
        outer = listener()
        async with await serve(outer, fixed("127.0.0.1", port)):
            assert await talk(outer.getsockname()[1], b"hello") == b""

    asyncio.run(run())
