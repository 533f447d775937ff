"""The requests of OpenAI's API that a pod serves.

Fields that would change the answer and are not served take only the value that changes nothing, so that a client is
told instead of getting something else than it asked for.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_SALT_LENGTH = 1024
MAX_BIASES = 1024
MAX_TOP_LOGPROBS = 20

Stop = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_LENGTH)]
Stops = Annotated[list[Stop], Field(max_length=MAX_STOPS), BeforeValidator(lambda v: [v] if isinstance(v, str) else v)]


def _neutral(value: object) -> object:
    if value:
        raise ValueError("not served here; leave it out")
    return value


def _absent(value: object) -> object:
    if value is not None:
        raise ValueError("not served here; leave it out")
    return value


TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS, strict=True)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]

Unserved = Annotated[object, AfterValidator(_neutral)]
Absent = Annotated[object, AfterValidator(_absent)]
"""Of a field whose 0 asks for something too."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class StreamOptions(_Body):
    """What a stream carries beside the text."""

    include_usage: bool = False
    """One more chunk at the end, without choices, with the token counts."""


class GenerationBody(_Body, ABC):
    """What both kinds of completion take."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    """Draw from that many likeliest tokens only; 0 and -1 mean all. Not in OpenAI's API."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Draw from tokens at least this likely, as a share of the likeliest token's probability. Not in OpenAI's API."""
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    """Divides positive logits of tokens in prompt and output, multiplies negative ones. Not in OpenAI's API."""
    logit_bias: Annotated[dict[TokenId, Bias], Field(max_length=MAX_BIASES)] | None = None
    """Added to the logits of these tokens."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stops | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    """Go on to `max_tokens` whatever the model says, for measurements. Not in OpenAI's API."""
    cache_salt: Annotated[str, StringConstraints(max_length=MAX_SALT_LENGTH)] | None = None
    """The KV of equal prompts is shared only among requests of the same tenant and salt. Not in OpenAI's API."""
    tool_schema: Annotated[str, StringConstraints(max_length=MAX_SALT_LENGTH)] | None = None
    """Revision of the tools that the prompt names: another one shares no KV with it. Not in OpenAI's API."""
    prompt_logprobs: Absent = None
    user: str | None = None

    n: Literal[1] | None = None

    @property
    @abstractmethod
    def wanted_logprobs(self) -> int | None:
        """How many likeliest tokens go with each token; None if no log-probabilities are asked for."""

    @field_validator("stream_options")
    @classmethod
    def _stream_options_need_a_stream(cls, options: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if options is not None and not info.data.get("stream"):
            raise ValueError("goes only with stream: true")
        return options


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: str | list[TokenId]
    """Text, or the tokens themselves."""
    logprobs: TopLogprobs | None = None
    """Give log-probabilities, and those of that many likeliest tokens."""
    best_of: Literal[1] | None = None
    echo: Unserved = None
    suffix: Unserved = None

    @property
    def wanted_logprobs(self) -> int | None:
        """How many likeliest tokens go with each token; None if no log-probabilities are asked for."""
        return self.logprobs


class TextPart(_Body):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a conversation; what else it carries goes to the chat template."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[TextPart] | None = None

    def for_template(self) -> dict[str, Any]:
        """Return the message as chat templates take it, with its text in one piece."""
        text = "".join(part.text for part in self.content) if isinstance(self.content, list) else self.content
        return {**self.model_dump(exclude_unset=True), "content": text or ""}


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    """Give log-probabilities of the tokens."""
    top_logprobs: TopLogprobs | None = None
    """Give those of that many likeliest tokens too."""
    tools: Unserved = None
    tool_choice: Literal[None, "none", "auto"] = None
    response_format: Annotated[dict[Literal["type"], Literal["text"]], Field(max_length=1)] | None = None

    @field_validator("top_logprobs")
    @classmethod
    def _top_logprobs_need_logprobs(cls, top: int | None, info: ValidationInfo) -> int | None:
        if top is not None and not info.data.get("logprobs"):
            raise ValueError("goes only with logprobs: true")
        return top

    @property
    def wanted_logprobs(self) -> int | None:
        """How many likeliest tokens go with each token; None if no log-probabilities are asked for."""
        return (self.top_logprobs or 0) if self.logprobs else None
