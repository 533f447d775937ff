"""What to make of a trace: how much of it, how fast, and with what mixed in."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from leeway_core.errors import UserError
from leeway_core.objective import Objective
from pydantic import ValidationError


class Lengths(StrEnum):
    """Which cohort of prompt lengths to send."""

    ALL = "all"
    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """An objective and its weight among the requests."""

    objective: Objective
    weight: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `NAME:KEY=VALUE,...`: keys of a ServingProfile's objective, and `weight`."""
        name, _, rest = text.partition(":")
        fields = {key.strip(): value for key, _, value in (pair.partition("=") for pair in rest.split(","))}
        known = {str(field.alias) for field in Objective.model_fields.values()} - {"name"}
        if not fields.keys() <= known | {"weight"}:
            raise UserError(f"an objective must be NAME:KEY=VALUE,... with keys of weight, {', '.join(sorted(known))}")
        try:
            weight = float(fields.pop("weight", 1.0))
            objective = Objective.model_validate({"name": name, **fields})
            if not 0 < float(objective.target_percent) <= 100:
                raise ValueError("targetPercent must be above 0 and at most 100")
        except ValidationError as error:
            (first, *_) = error.errors()
            raise UserError(f"objective {text!r}: {first['loc'][0]}: {first['msg']}") from error
        except ValueError as error:
            raise UserError(f"objective {text!r}: {error}") from error
        if {objective.ttft_ms, objective.itl_ms, objective.tpot_ms, objective.deadline_seconds} == {None}:
            raise UserError(f"objective {text!r} needs a bound: ttftMs, itlMs, tpotMs or deadlineSeconds")
        return cls(objective, weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How to turn a trace into requests. Equal workloads turn a trace into equal requests."""

    classes: tuple[TrafficClass, ...] = ()
    """Objectives that requests are drawn from by weight. None: latencies are measured, attainment isn't."""

    seed: int = 0

    max_requests: int | None = None
    """Use only so many of the trace's first requests."""

    duration_s: float | None = None
    """Stop sending after this long."""

    rate: float | None = None
    """Stretch or squeeze time until the mean rate is this many requests a second. Excludes `time_scale`."""

    time_scale: float = 1.0
    """Stretches time: 2 halves the rate."""

    prompt_scale: float = 1.0
    output_scale: float = 1.0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None

    lengths: Lengths = Lengths.ALL
    """Send only short or only long prompts, each at the time and of the kind that it has among all."""

    short_tokens: int = 512
    """Longest prompt that counts as short."""

    prefix_hit_share: float | None = None
    """Share of the requests that begin like earlier ones of their tenant. None: as the trace has it."""

    tenants: int = 1
    tenant_skew: float = 0.0
    """Exponent of the tenants' Zipf shares: 0 is even, 1 gives the second tenant half of what the first has."""

    burst_period_s: float | None = None
    """Squeeze the arrivals of each such period into its beginning; the mean rate stays."""

    burst_share: float = 0.2
    """The part of the burst period that its requests are squeezed into."""

    cancel_share: float = 0.0
    """Share of the requests whose client leaves, at an even chance anywhere within `cancel_within_s`."""

    cancel_within_s: float = 10.0

    timeout_s: float = 600.0
    """How long clients wait for the last token."""

    hasty_share: float = 0.0
    """Share of the requests whose client times out after `hasty_timeout_s` already."""

    hasty_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what makes no requests."""
        names = [one.objective.name for one in self.classes]
        if len(set(names)) < len(names):
            raise UserError(f"objectives need different names, not {', '.join(names)}")
        if self.rate is not None and self.time_scale != 1.0:
            raise UserError("give a rate or a time scale, not both")
        positive = {
            "weight": min((one.weight for one in self.classes), default=1.0),
            "requests": self.max_requests,
            "duration": self.duration_s,
            "rate": self.rate,
            "time scale": self.time_scale,
            "prompt scale": self.prompt_scale,
            "output scale": self.output_scale,
            "longest prompt": self.max_prompt_tokens,
            "longest output": self.max_output_tokens,
            "number of tenants": self.tenants,
            "burst period": self.burst_period_s,
            "burst share": self.burst_share,
            "time-out": self.timeout_s,
            "hasty time-out": self.hasty_timeout_s,
        }
        for name, value in positive.items():
            if value is not None and not value > 0:
                raise UserError(f"{name} must be above 0, not {value}")
        shares = {
            "prefix hit share": self.prefix_hit_share,
            "burst share": self.burst_share,
            "share of cancels and time-outs together": self.cancel_share + self.hasty_share,
            "cancel share": self.cancel_share,
            "hasty share": self.hasty_share,
        }
        for name, share in shares.items():
            if share is not None and not 0 <= share <= 1:
                raise UserError(f"{name} must be between 0 and 1, not {share}")
        if self.tenant_skew < 0 or self.cancel_within_s < 0:
            raise UserError("tenant skew and cancel window can't be negative")
