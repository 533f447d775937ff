"""The server that the load goes to."""

from dataclasses import dataclass

from leeway_core.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An OpenAI-compatible server and how to talk to it."""

    url: str
    """Base address, with or without a trailing `/v1`."""

    model: str | None = None
    """Model to ask for; None takes the first that the server lists."""

    api_key: str | None = None

    token_ids: range = range(1000, 20_000)
    """Token ids that prompts are made of: plain tokens of the model's vocabulary."""

    ignore_eos: bool = True
    """Ask for outputs exactly as long as the trace's. An extension that Leeway, vLLM and SGLang know."""

    def __post_init__(self) -> None:
        """Refuse what can't be sent to."""
        if not self.url.startswith(("http://", "https://")):
            raise UserError(f"the server's URL must begin with http:// or https://, not be {self.url!r}")
        if not self.token_ids or self.token_ids[0] < 0:
            raise UserError("the range of token ids must hold at least one id, and none below 0")

    def endpoint(self, name: str) -> str:
        """Address of one endpoint of the API."""
        return f"{self.url.rstrip('/').removesuffix('/v1')}/v1/{name}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        authorization = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"content-type": "application/json", **authorization}
