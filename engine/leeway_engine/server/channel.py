"""What the API process and the engine loop say to each other, and how it is framed."""

import asyncio
import select
import socket
import struct

import msgspec

from leeway_engine.messages import EngineStats, GenerationRequest, TokenEvent
from leeway_engine.request_event import RequestEvent

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode


class Add(msgspec.Struct, frozen=True, tag=True):
    """To the loop: serve this request."""

    request: GenerationRequest


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """To the loop: nobody waits for this request any more."""

    request_id: str
    since_s: float | None = None
    """When that was noticed, on the clock of the requests' arrivals; None if that is of no interest."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """To the loop: the answer is whole, as text has come that ends it."""

    request_id: str


class Wake(msgspec.Struct, frozen=True, tag=True):
    """To the loop: there are new knobs, should you be idle."""


class Booted(msgspec.Struct, frozen=True, tag=True):
    """From the loop: the model is loaded and warm."""

    context: int
    """Most tokens, prompt and output, that the model takes."""
    kv_tokens: int
    """Tokens that the KV pool holds."""


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """From the loop: this request is not served, now or ever."""

    request_id: str
    code: str
    message: str
    retry_after_s: float | None = None
    """When to come again; None where that is of no use."""


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """From the loop: an iteration is done, or requests were cancelled without one."""

    events: list[TokenEvent]
    stats: EngineStats
    cancel_delays_s: list[float] = []
    """Of each cancel since the last message, how long after it was noticed the scheduler heard of it."""
    log: list[RequestEvent] = []
    """What happened to traced requests since the last message."""


ToLoop = Add | Cancel | Stop | Wake
FromLoop = Booted | Rejected | Stepped

_decode_to_loop = msgspec.msgpack.Decoder(ToLoop).decode
_decode_from_loop = msgspec.msgpack.Decoder(FromLoop).decode


def frame(message: ToLoop | FromLoop) -> bytes:
    """Return a message as it goes over the socket."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


async def read_from_loop(reader: asyncio.StreamReader) -> FromLoop:
    """Wait for the loop's next message; raises IncompleteReadError when the loop is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return _decode_from_loop(await reader.readexactly(length))


class LoopChannel:
    """The loop's end: it never waits for the API process, save when it has nothing to do."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over one end of a socket pair."""
        sock.setblocking(False)
        self._sock = sock
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def send(self, message: FromLoop) -> None:
        """Send what the socket takes now, and the rest with later calls."""
        self._outgoing += frame(message)
        self._flush()

    def receive(self) -> list[ToLoop]:
        """Return the messages that have arrived; raises EOFError when the API process is gone."""
        self._flush()
        try:
            while data := self._sock.recv(1 << 18):
                self._incoming += data
            raise EOFError("the API process is gone")
        except BlockingIOError:
            return self._unframe()
        except ConnectionError as error:
            raise EOFError("the API process is gone") from error

    def wait(self, longest_s: float | None = None) -> None:
        """Sleep until there is something to receive or to send on, but not longer than this."""
        select.select([self._sock], [self._sock] if self._outgoing else [], [], longest_s)

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._sock.send(self._outgoing)]
        except BlockingIOError:
            pass
        except ConnectionError as error:
            raise EOFError("the API process is gone") from error

    def _unframe(self) -> list[ToLoop]:
        messages: list[ToLoop] = []
        start = 0
        while len(self._incoming) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._incoming, start)
            end = start + _LENGTH.size + length
            if len(self._incoming) < end:
                break
            messages.append(_decode_to_loop(self._incoming[start + _LENGTH.size : end]))
            start = end
        del self._incoming[:start]
        return messages
