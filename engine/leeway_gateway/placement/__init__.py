"""Which pod serves a request: pure functions over what the gateway knows of its pods."""
