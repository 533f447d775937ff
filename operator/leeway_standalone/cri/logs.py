"""Container logs as the kubelet reads them: `<RFC 3339 time> <stream> <F or P> <content>`, P where a line goes on."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

MAX_CONTENT_BYTES = 16 * 1024


class LineFramer:
    """Cuts one stream into log entries; holds back what is not a whole line yet."""

    def __init__(self, stream: str) -> None:
        """Frame `stdout` or `stderr`."""
        self._stream = stream
        self._rest = b""

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """The entries that are complete once `data` has arrived."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        head = f"{timestamp(now_ns)} {self._stream} ".encode()
        entries = [entry for line in lines for entry in self._entries(head, line, b"F ")]
        whole = len(self._rest) // MAX_CONTENT_BYTES * MAX_CONTENT_BYTES
        if whole:
            entries += self._entries(head, self._rest[:whole], b"P ")
            self._rest = self._rest[whole:]
        return b"".join(entries)

    def finish(self, now_ns: int) -> bytes:
        """The entry for what is left when the stream ends without a newline."""
        if not self._rest:
            return b""
        head = f"{timestamp(now_ns)} {self._stream} ".encode()
        rest, self._rest = self._rest, b""
        return head + b"P " + rest + b"\n"

    @staticmethod
    def _entries(head: bytes, line: bytes, last_tag: bytes) -> list[bytes]:
        starts = range(0, max(len(line), 1), MAX_CONTENT_BYTES)
        tags = [b"P "] * (len(starts) - 1) + [last_tag]
        parts = (line[start : start + MAX_CONTENT_BYTES] for start in starts)
        return [head + tag + part + b"\n" for tag, part in zip(tags, parts, strict=True)]


class ContainerLog:
    """The log file of one container, fed by both of its streams."""

    def __init__(self, path: str) -> None:
        """Append to the file at `path`; without one, throw all away."""
        self._path = Path(path) if path else None
        self._framers = {stream: LineFramer(stream) for stream in ("stdout", "stderr")}
        self._file: BinaryIO | None = None
        self.reopen()

    def write(self, stream: str, data: bytes, now_ns: int) -> None:
        """Append what came on a stream; empty data is its end. A full disk loses lines, not the container."""
        framer = self._framers[stream]
        entries = framer.feed(data, now_ns) if data else framer.finish(now_ns)
        if self._file and entries:
            with suppress(OSError):
                self._file.write(entries)

    def reopen(self) -> None:
        """Go on in a new file at the same path, after the old one was renamed."""
        self.close()
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "ab", buffering=0, opener=_private)  # noqa: SIM115 - `close` closes it

    def close(self) -> None:
        """Close the file; what is written later is lost."""
        if self._file:
            self._file.close()
            self._file = None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o640)


def timestamp(now_ns: int) -> str:
    """RFC 3339 with nanoseconds, in UTC."""
    seconds, nanoseconds = divmod(now_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
