"""A profile's pods together with the means to turn their knobs."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from leeway_core.pod_knobs import PodKnobs
from leeway_core.record import Record

from leeway_operator.metrics import PUSHES
from leeway_operator.names import Names
from leeway_operator.observation import Observation, PodObserved
from leeway_operator.pod_client import PodClient, PushRefusedError
from leeway_operator.pods import Pod


@dataclass(frozen=True, slots=True)
class Fleet:
    """The pods as they were observed, and the token of their knob endpoints."""

    client: PodClient
    token: str
    observed: Observation

    @classmethod
    async def look(cls, client: PodClient, token: str, names: Names, replicas: int, pods: Iterable[Pod]) -> Self:
        """Ask all engine pods for their knobs."""
        engines, gateways, strangers = list[PodObserved](), list[Pod](), list[str]()
        for pod in pods:
            if pod.component == "gateway":
                gateways.append(pod)
            elif (ordinal := names.ordinal(pod.name)) is not None:
                engines.append(PodObserved(pod, ordinal))
            else:
                strangers.append(pod.name)
        observed = Observation(replicas, tuple(engines), tuple(gateways), tuple(strangers))
        return await cls(client, token, observed).look_again()

    async def look_again(self) -> Self:
        """Ask the same pods again."""
        asked = self.observed.engines
        replies = await asyncio.gather(*(self.client.read(item.pod, self.token) for item in asked))
        engines = tuple(replace(item, knobs=reply) for item, reply in zip(asked, replies, strict=True))
        return replace(self, observed=replace(self.observed, engines=engines))

    async def push(self, record: Record) -> list[str]:
        """Push the knobs in force to the pods that have others; returns what was refused."""
        answers = await asyncio.gather(*(self._push(pod, knobs) for pod, knobs in self.observed.to_push(record)))
        return [refusal for refusal in answers if refusal]

    async def _push(self, pod: Pod, knobs: PodKnobs) -> str:
        try:
            with PUSHES.time():
                await self.client.push(pod, knobs, self.token)
        except PushRefusedError as refusal:
            return str(refusal)
        return ""
