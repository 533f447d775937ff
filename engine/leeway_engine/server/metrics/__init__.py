"""What a pod counts, by what it is about."""
