"""Log-probabilities of drawn tokens and of the likeliest ones."""

import numpy as np
import torch
from torch import Tensor

from leeway_engine.messages import TokenLogprobs
from leeway_engine.model.spans import Ints


def token_logprobs(logits: Tensor, tokens: Tensor, wanted: Ints) -> dict[int, TokenLogprobs]:
    """Return, by place, the log-probabilities of those requests that want them.

    `logits` are the model's own, [requests, vocabulary], `tokens` the drawn ones; `wanted` is how many likeliest tokens
    each request asks for, -1 for none and no log-probability of its own token either.
    """
    places = np.flatnonzero(wanted >= 0)
    if not len(places):
        return {}
    index = torch.from_numpy(places).to(logits.device)
    likely = logits[index].float().log_softmax(dim=-1)
    own = likely.gather(-1, tokens[index][:, None])[:, 0].tolist()
    top = likely.topk(min(int(wanted.max()), likely.shape[-1]), dim=-1)
    values, ids = top.values.tolist(), top.indices.tolist()
    return {
        place: TokenLogprobs(token_id, own[number], tuple(ids[number][:count]), tuple(values[number][:count]))
        for number, (place, token_id, count) in enumerate(
            zip(places.tolist(), tokens[index].tolist(), wanted[places].tolist(), strict=True)
        )
    }
