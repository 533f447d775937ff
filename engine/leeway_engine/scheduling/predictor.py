"""Predicts how long an iteration takes, from the iterations before it."""

from math import sqrt

from leeway_engine.scheduling.load import Load

_FEW_TOKENS = 8
"""Up to so many tokens, matrix products take longer with each; then a while longer hardly at all, as tiles fill up."""
_SCALES = (1.0, 16.0, 4096.0, 256.0, 65536.0, _FEW_TOKENS)
"""Usual sizes of constant, decodes, context, prefill tokens, pairs and few tokens, so that all features are near 1."""
_PLACES = range(len(_SCALES))
_FORGETTING = 0.998
_RIDGE = 1e-3
_SWEEPS = 2
_CLIP = 3.0
"""Errors count up to that many usual errors (Huber)."""
_LEAST_ERROR, _FIRST_ERROR = 0.02, 0.5
_FIRST_PREDICTION = 16
UNLIMITED = 1 << 60


class Predictor:
    """T = a + b·decodes + c·context + d·prefill tokens + e·pairs + f·min(tokens, 8), in seconds, by recursive least
    squares.

    Errors are relative, so short iterations count as much as long ones; they are clipped, so one stalled iteration
    moves little; old ones are forgotten, so a pod that becomes slower is followed. No coefficient is negative, so more
    work never seems to take less time: each observation is followed by sweeps of coordinate descent that keep them so,
    from where the last ones ended.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._theta = [0.0 for _ in _PLACES]
        self._products = [[0.0 for _ in _PLACES] for _ in _PLACES]
        """Sums of features times features, and below of features times seconds, both over squared seconds."""
        self._targets = [0.0 for _ in _PLACES]
        self._usual_error = _FIRST_ERROR
        self._seen = 0

    @property
    def ready(self) -> bool:
        """Whether enough iterations were seen to predict."""
        return self._seen >= _FIRST_PREDICTION

    def predict(self, load: Load) -> float:
        """Return the seconds that an iteration will take, or 0 before `ready`."""
        return self._estimate(_features(load)) if self.ready else 0.0

    def largest_chunk(self, load: Load, context: int, limit_s: float) -> int:
        """Return the most tokens of a request with `context` tokens in KV that fit beside the load into `limit_s`.

        Solves q/2·c² + (d + q·context)·c = room for c, with the load taken to have tokens enough already. Before
        `ready` there is no limit.
        """
        if not self.ready:
            return UNLIMITED
        *features, _ = _features(load)
        room_s = limit_s - self._estimate([*features, 1.0])
        if room_s <= 0:
            return 0
        pair_s = self._theta[4] / _SCALES[4]
        token_s = self._theta[3] / _SCALES[3] + pair_s * context
        slope_s = token_s + sqrt(token_s * token_s + 2 * pair_s * room_s)
        return UNLIMITED if slope_s * UNLIMITED <= 2 * room_s else int(2 * room_s / slope_s)

    def observe(self, load: Load, seconds: float) -> None:
        """Learn from an iteration that took so long."""
        features = _features(load)
        estimate = self._estimate(features)
        self._seen += 1
        error = (seconds - estimate) / seconds
        if self.ready:
            limit = _CLIP * self._usual_error
            self._usual_error += 0.05 * (max(_LEAST_ERROR, min(abs(error), 2 * limit)) - self._usual_error)
            error = max(-limit, min(limit, error))
        row = [feature / seconds for feature in features]
        self._learn(row, estimate / seconds + error)

    def _estimate(self, features: list[float]) -> float:
        a, b, c, d, e, f = self._theta
        _, g, h, i, j, k = features
        return a + b * g + c * h + d * i + e * j + f * k

    def _learn(self, row: list[float], target: float) -> None:
        """Take one equation, row · coefficients = target, into the sums and move the coefficients towards them."""
        theta, targets, keep = self._theta, self._targets, _FORGETTING
        u, v, w, x, y, z = row
        for place, (scale, line) in enumerate(zip(row, self._products, strict=True)):
            a, b, c, d, e, f = line
            line[:] = (
                keep * a + scale * u,
                keep * b + scale * v,
                keep * c + scale * w,
                keep * d + scale * x,
                keep * e + scale * y,
                keep * f + scale * z,
            )
            targets[place] = keep * targets[place] + scale * target
        for _ in range(_SWEEPS):
            for place, line in enumerate(self._products):
                own = line[place]
                if own > 0:
                    a, b, c, d, e, f = line
                    others = a * theta[0] + b * theta[1] + c * theta[2] + d * theta[3] + e * theta[4] + f * theta[5]
                    others -= own * theta[place]
                    # The ridge decides between features that always go together.
                    theta[place] = max(0.0, (targets[place] - others) / (own * (1 + _RIDGE)))


def _features(load: Load) -> list[float]:
    return [
        1.0,
        load.decodes / _SCALES[1],
        load.context_tokens / _SCALES[2],
        load.prefill_tokens / _SCALES[3],
        load.prefill_pairs / _SCALES[4],
        min(load.decodes + load.prefill_tokens, _FEW_TOKENS) / _SCALES[5],
    ]
