"""How a try on a pod can fail while the request may still go to another."""

from aiohttp import web


class RefusedError(Exception):
    """The pod did not take the request."""

    def __init__(self, answer: web.Response | None = None, code: str = "", retry_after_s: float | None = None) -> None:
        """`answer` is the pod's own, for the client, where it gave a reason; `code` is that reason for programs."""
        super().__init__(code)
        self.answer = answer
        self.code = code
        self.retry_after_s = retry_after_s


class BrokenOffError(Exception):
    """The pod took the request and broke it off, or fell silent."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        """The message is for the client."""
        super().__init__(message)
        self.timed_out = timed_out
