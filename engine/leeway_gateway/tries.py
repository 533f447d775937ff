"""How a try on a pod can fail while the request may still go to another."""


class RefusedError(Exception):
    """The pod did not take the request."""


class BrokenOffError(Exception):
    """The pod took the request and broke it off, or fell silent."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        """The message is for the client."""
        super().__init__(message)
        self.timed_out = timed_out
