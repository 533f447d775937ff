"""The engine loop as the API process sees it: a child that dies with it, and takes it along when it dies."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from leeway_engine.messages import GenerationRequest, TokenEvent
from leeway_engine.scheduling.request import FinishReason
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
from leeway_engine.server.watchdog import Progress


class EngineProcess:
    """Starts the loop, gives it requests and hands its tokens to their streams."""

    def __init__(self, on_step: Callable[[Stepped], None]) -> None:
        """`on_step` is told of each iteration."""
        self.accepted_knobs = Register.create()
        self.enforced_knobs = Register.create()
        self.context = self.kv_tokens = 0
        self.ready = asyncio.Event()
        """Set when the model has made its first iteration."""
        self.died = asyncio.Event()
        """Set when the loop is gone."""
        self.idle = asyncio.Event()
        """Set while there are no requests."""
        self.idle.set()
        self._on_step = on_step
        self._streams: dict[str, TokenStream] = {}
        self._heard = Progress()

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
    def max_request_tokens(self) -> int:
        """Most tokens, prompt and output, that one request may have: context and KV pool both hold them."""
        return min(self.context, self.kv_tokens)

    def progress(self) -> Progress:
        """What the loop has done and has in hand; an answer that only its client still has to take is not in hand."""
        return self._heard._replace(in_flight=sum(not stream.ended for stream in self._streams.values()))

    @contextmanager
    def stream(
        self, request: GenerationRequest, on_tokens: Callable[[TokenEvent], None] | None = None
    ) -> Iterator[TokenStream]:
        """Give the loop a request; on leaving, one that has not ended is stopped, or cancelled if it isn't whole.

        `on_tokens` is told of its tokens as they come. Its stream breaks off when it expires.
        """
        stream = self._streams[request.request_id] = TokenStream(on_tokens, len(request.prompt_token_ids))
        self.idle.clear()
        timer: asyncio.TimerHandle | None = None
        try:
            if self.died.is_set():
                stream.fail(_died())
            else:
                self._send(Add(request))
                timer = self._timer(request)
            yield stream
        finally:
            if timer is not None:
                timer.cancel()
            del self._streams[request.request_id]
            if not self._streams:
                self.idle.set()
            if not stream.ended:
                whole = stream.whole
                self._send(Stop(request.request_id) if whole else Cancel(request.request_id, time.monotonic()))

    def end(self, request_id: str, error: GenerationError) -> TokenStream | None:
        """End a request wherever it is and return its broken stream; None if there is none that is still to end.

        The loop hears of it before its next iteration.
        """
        stream = self._streams.get(request_id)
        if stream is None or stream.ended or stream.whole:
            return None
        stream.fail(error)
        self._send(Cancel(request_id, time.monotonic()))
        return stream

    def _timer(self, request: GenerationRequest) -> asyncio.TimerHandle | None:
        if request.expires_s is None:
            return None
        error = GenerationError("timed_out", f"not done {request.expires_s - request.arrival_s:g} s after its arrival")
        left_s = request.expires_s - time.monotonic()
        return asyncio.get_running_loop().call_later(left_s, self.end, request.request_id, error)

    def wake(self) -> None:
        """Have an idle loop look at its knobs."""
        self._send(Wake())

    def kill(self) -> None:
        """End a loop that does not answer; `died` is set as soon as it is gone."""
        self._process.kill()

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
                self._heard = self._heard._replace(messages=self._heard.messages + 1)
                match message:
                    case Stepped():
                        for event in message.events:
                            if stream := self._streams.get(event.request_id):
                                _hand_over(event, stream)
                        stats = message.stats
                        tokens = stats.prefill_tokens + stats.decode_tokens
                        ended = self._heard.ended + sum(event.finish_reason is not None for event in message.events)
                        self._heard = self._heard._replace(iterations=stats.iterations, tokens=tokens, ended=ended)
                        self._on_step(message)
                    case Rejected(request_id, code, text, retry_after_s):
                        self._heard = self._heard._replace(ended=self._heard.ended + 1)
                        if stream := self._streams.get(request_id):
                            stream.fail(GenerationError(code, text, retry_after_s))
                    case Booted():
                        self.context, self.kv_tokens = message.context, message.kv_tokens
                        self.ready.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ready.clear()
            self.died.set()
            for stream in self._streams.values():
                stream.fail(_died())


def _hand_over(event: TokenEvent, stream: TokenStream) -> None:
    if event.finish_reason is FinishReason.ERROR:
        message = "the pod failed to compute this request, and its log has the cause; send the request again"
        stream.fail(GenerationError("engine_failed", message))
    else:
        stream.put(event)


def _died() -> GenerationError:
    return GenerationError("engine_died", "the engine of this pod died; send the request again")
