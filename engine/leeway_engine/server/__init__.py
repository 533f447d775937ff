"""The processes of a pod: the API that clients talk to, and the engine loop beside it."""
