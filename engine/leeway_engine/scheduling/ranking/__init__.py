"""Who goes first: the alternatives, one a file."""
