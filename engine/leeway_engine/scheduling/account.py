"""What a tenant was served."""


class Account:
    """One tenant's counter, in weighted tokens, how many of its requests wait and run, and the tokens that wait."""

    __slots__ = ("counter", "queued", "ranked_at", "running", "tenant", "waiting_tokens")

    def __init__(self, tenant: str) -> None:
        """Nothing was served yet."""
        self.tenant = tenant
        self.counter = 0.0
        self.queued = 0
        self.running = 0
        self.waiting_tokens = 0
        self.ranked_at: float | None = None
        """Counter of its entry in the tenants' heap; None if there is none."""
