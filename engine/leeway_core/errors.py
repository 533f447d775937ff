"""The one kind of error that is shown to a user as it is."""


class UserError(Exception):
    """Something the user can put right; the message says how. The command line prints it without a traceback."""
