"""What can go wrong for a user of the standalone."""

from leeway_core.errors import UserError


class StandaloneError(UserError):
    """The standalone cannot start, or stopped; the message says why and what to do."""
