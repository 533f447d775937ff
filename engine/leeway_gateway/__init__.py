"""The front of a profile: hands requests to engine pods, and counts each against its objective."""
