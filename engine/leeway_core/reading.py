"""What a look at the telemetry gave: a value, or the reason why there is none. Missing is not zero."""

from typing import Annotated, Literal

from pydantic import Field

from leeway_core.model import Model

Samples = Annotated[int, Field(ge=0)]
Age = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Value(Model):
    """A finite value that rests on enough samples, all of pods that live now."""

    kind: Literal["Value"] = "Value"
    value: Annotated[float, Field(allow_inf_nan=False)]
    samples: Samples
    """How many requests, or gaps between tokens, it rests on."""
    age_s: Age
    """Time since the newest scrape in it."""


class Idle(Model):
    """All is scraped, and nothing happened."""

    kind: Literal["Idle"] = "Idle"
    age_s: Age


class Missing(Model):
    """No live pod has such a series."""

    kind: Literal["Missing"] = "Missing"


class Stale(Model):
    """The newest scrape of some live pod is too old."""

    kind: Literal["Stale"] = "Stale"
    age_s: Age


class TooFewSamples(Model):
    """Something happened, or the window has only begun: too little to judge by."""

    kind: Literal["TooFewSamples"] = "TooFewSamples"
    samples: Samples
    age_s: Age


class Outdated(Model):
    """Some live gateway still judges by other objectives than the profile's, so no verdict tells of these."""

    kind: Literal["Outdated"] = "Outdated"
    pods: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of those gateways."""


class Error(Model):
    """Prometheus could not be asked, or its answer made no sense."""

    kind: Literal["Error"] = "Error"
    message: str


Reading = Annotated[Value | Idle | Missing | Stale | TooFewSamples | Outdated | Error, Field(discriminator="kind")]


def is_lost(reading: Reading) -> bool:
    """Tell whether the telemetry itself fails, as against traffic that is thin or absent."""
    return isinstance(reading, Missing | Stale | Outdated | Error)
