"""A value that one process writes and another reads, without either waiting for the other's work."""

import fcntl
import os
import struct

_LENGTH = struct.Struct("<I")


class Register:
    """The last value written, in memory shared by file descriptor. A reader never sees half of a write.

    Unlike a message, a value is replaced by the next one, so a reader that is busy for long holds up no writer.
    """

    def __init__(self, fd: int) -> None:
        """Use the register behind a file descriptor, as inherited from the process that created it."""
        self.fd = fd

    @classmethod
    def create(cls) -> "Register":
        """Make an empty register."""
        return cls(os.memfd_create("leeway-register"))

    def write(self, value: bytes) -> None:
        """Replace the value."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            os.pwrite(self.fd, _LENGTH.pack(len(value)) + value, 0)
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def read(self) -> bytes:
        """Return the value, empty if there was none yet."""
        fcntl.lockf(self.fd, fcntl.LOCK_SH)
        try:
            header = os.pread(self.fd, _LENGTH.size, 0)
            return os.pread(self.fd, _LENGTH.unpack(header)[0], _LENGTH.size) if header else b""
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the file descriptor back."""
        os.close(self.fd)
