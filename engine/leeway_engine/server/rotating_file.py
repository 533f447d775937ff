"""A file of lines that goes on in a new one when it is full."""

import os
from pathlib import Path


class RotatingFile:
    """Holds so many bytes in so many files at most: PATH is written to, PATH.1 is the one before, and so on.

    After an error the next write tries again from the start, so a path that comes back is written to again, and never
    leaves half a line behind.
    """

    def __init__(self, path: Path, most_bytes: int, files: int) -> None:
        """Open nothing yet. `most_bytes` are those of each file, but a single write is never cut."""
        self._path = path
        self._most_bytes = most_bytes
        self._files = files
        self._fd: int | None = None
        self._size = 0

    def write(self, lines: bytes) -> None:
        """Append whole lines, or raise OSError and append nothing."""
        try:
            self._append(lines)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file; a later write opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, lines: bytes) -> None:
        fd = self._open() if self._fd is None else self._fd
        if self._size and self._size + len(lines) > self._most_bytes:
            self.close()
            self._shift()
            fd = self._open()
        written = 0
        try:
            while written < len(lines):
                written += os.write(fd, lines[written:])
        except OSError:
            if written:
                os.ftruncate(fd, self._size)
            raise
        self._size += written

    def _open(self) -> int:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._fd).st_size
        return self._fd

    def _shift(self) -> None:
        """Rename each file to the next number; the last one is overwritten or, if it is the only one, removed."""
        if self._files == 1:
            self._path.unlink()
            return
        for number in range(self._files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
