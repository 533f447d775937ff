"""What can go wrong for a user of the load generator."""


class LoadError(Exception):
    """A failure with a message that tells the user what to change."""
