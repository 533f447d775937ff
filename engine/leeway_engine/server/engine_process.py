"""The engine loop as the API process sees it: a child that dies with it, and takes it along when it dies."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from leeway_engine.messages import GenerationRequest
from leeway_engine.server.channel import (
    Add,
    Booted,
    Cancel,
    Rejected,
    Stepped,
    Stop,
    ToLoop,
    Wake,
    frame,
    read_from_loop,
)
from leeway_engine.server.register import Register
from leeway_engine.server.token_stream import GenerationError, TokenStream


class EngineProcess:
    """Starts the loop, gives it requests and hands its tokens to their streams."""

    def __init__(self, on_step: Callable[[Stepped], None]) -> None:
        """`on_step` is told of each iteration."""
        self.accepted_knobs = Register.create()
        self.enforced_knobs = Register.create()
        self.max_request_tokens = 0
        self.ready = asyncio.Event()
        """Set when the model has made its first iteration."""
        self.died = asyncio.Event()
        """Set when the loop is gone."""
        self.idle = asyncio.Event()
        """Set while there are no requests."""
        self.idle.set()
        self._on_step = on_step
        self._streams: dict[str, TokenStream] = {}

    async def start(self, engine_config: str) -> None:
        """Start the loop's process with the engine's configuration as JSON."""
        ours, theirs = socket.socketpair()
        fds = (theirs.fileno(), self.accepted_knobs.fd, self.enforced_knobs.fd)
        command = (sys.executable, "-m", "leeway_engine.server.loop", *map(str, fds))
        # Weights and KV cache in large pages are read half as fast again.
        env = {"THP_MEM_ALLOC_ENABLE": "1", **os.environ}
        self._process = await asyncio.create_subprocess_exec(
            *command, pass_fds=fds, stdin=asyncio.subprocess.PIPE, env=env
        )
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        assert self._process.stdin is not None
        self._process.stdin.write(engine_config.encode())
        self._process.stdin.close()
        self._receiver = asyncio.create_task(self._receive(reader))

    @property
    def requests(self) -> int:
        """Requests that wait or run."""
        return len(self._streams)

    @contextmanager
    def stream(self, request: GenerationRequest) -> Iterator[TokenStream]:
        """Give the loop a request; on leaving, one that has not ended is stopped, or cancelled if it isn't whole."""
        stream = self._streams[request.request_id] = TokenStream()
        self.idle.clear()
        try:
            if self.died.is_set():
                stream.fail(_died())
            else:
                self._send(Add(request))
            yield stream
        finally:
            del self._streams[request.request_id]
            if not self._streams:
                self.idle.set()
            if not stream.ended:
                self._send(Stop(request.request_id) if stream.whole else Cancel(request.request_id))

    def wake(self) -> None:
        """Have an idle loop look at its knobs."""
        self._send(Wake())

    async def stop(self) -> int:
        """End the loop and return its exit code."""
        self._writer.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 5)
        if self._process.returncode is None:
            self._process.kill()
        self._receiver.cancel()
        self.accepted_knobs.close()
        self.enforced_knobs.close()
        return await self._process.wait()

    def _send(self, message: ToLoop) -> None:
        self._writer.write(frame(message))

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                message = await read_from_loop(reader)
                match message:
                    case Stepped():
                        for event in message.events:
                            if stream := self._streams.get(event.request_id):
                                stream.put(event)
                        self._on_step(message)
                    case Rejected(request_id, code, text, retry_after_s):
                        if stream := self._streams.get(request_id):
                            stream.fail(GenerationError(code, text, retry_after_s))
                    case Booted():
                        self.max_request_tokens = message.max_request_tokens
                        self.ready.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ready.clear()
            self.died.set()
            for stream in self._streams.values():
                stream.fail(_died())


def _died() -> GenerationError:
    return GenerationError("engine_died", "the engine of this pod died; send the request again")
