"""What a visit sees of a profile's pods, and whether they can be judged by: pure."""

from dataclasses import dataclass

from leeway_core.knobs import Knobs
from leeway_core.pod_knobs import KnobsReply, PodKnobs
from leeway_core.record import Record
from leeway_core.snapshot import Disturbance, PodSeen

from leeway_operator.pod_settings import pod_settings
from leeway_operator.pods import Pod


@dataclass(frozen=True, slots=True)
class PodObserved:
    """An engine pod and what it says of its knobs."""

    pod: Pod
    ordinal: int
    """Its place in the StatefulSet."""
    knobs: KnobsReply | None = None
    """None while it does not answer."""

    def seen(self) -> PodSeen:
        """Return it as the tuner sees it."""
        return PodSeen(
            name=self.pod.name,
            ready=self.pod.ready,
            since_s=self.pod.started_at_s,
            accepted=self.knobs.accepted if self.knobs else None,
            enforced=self.knobs.enforced if self.knobs else None,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """All of a profile's pods."""

    replicas: int
    """How many engine pods are asked for."""
    engines: tuple[PodObserved, ...]
    gateways: tuple[Pod, ...]
    strangers: tuple[str, ...] = ()
    """Names of pods that have the labels of engine pods, such as a copy to debug one, and are none of them."""

    @property
    def ready(self) -> int:
        """How many engine pods serve."""
        return sum(item.pod.ready and not item.pod.leaving for item in self.engines)

    @property
    def highest_generation(self) -> int:
        """Highest generation of knobs that any pod has accepted."""
        return max((item.knobs.accepted.generation for item in self.engines if item.knobs), default=0)

    def wanted(self, item: PodObserved, record: Record) -> PodKnobs:
        """Return the knobs that a pod should have."""
        return pod_settings(record.in_force, record.policies, item.ordinal, self.replicas)

    def to_push(self, record: Record) -> list[tuple[Pod, PodKnobs]]:
        """Return the pods that answer but have not accepted the knobs in force, and these."""
        return [
            (item.pod, wanted)
            for item in self.engines
            if item.knobs and item.knobs.accepted != (wanted := self.wanted(item, record))
        ]

    def overruled(self, record: Record, now_s: float) -> Record:
        """Return a record that every pod can take: one that has others' knobs, or later ones, needs a higher
        generation.
        """
        stuck = self._stuck(record)
        return record.renewed(record.incumbent, now_s, above=self.highest_generation) if stuck else record

    def disturbance(self, record: Record) -> Disturbance | None:
        """Return why the pods are not to be judged by now, or None if they are."""
        pods = [item.pod for item in self.engines]
        if len(pods) != self.replicas or any(pod.leaving for pod in pods) or len({pod.revision for pod in pods}) > 1:
            return "ReplicasChanging"
        if not all(pod.ready for pod in pods):
            return "PodsNotReady"
        if stuck := self._stuck(record):
            swapped = all(_of_the_other_role(accepted, wanted, record.in_force) for accepted, wanted in stuck)
            return "ReplicasChanging" if swapped else "KnobsEdited"
        if any(item.knobs is None or item.knobs.enforced != self.wanted(item, record) for item in self.engines):
            return "KnobsPending"
        return None

    def _stuck(self, record: Record) -> list[tuple[PodKnobs, PodKnobs]]:
        """Return the knobs, and those wanted instead, of pods that take none of the record's generation any more."""
        return [
            (item.knobs.accepted, wanted)
            for item in self.engines
            if item.knobs
            and item.knobs.accepted.generation >= record.in_force.generation
            and item.knobs.accepted != (wanted := self.wanted(item, record))
        ]


def _of_the_other_role(accepted: PodKnobs, wanted: PodKnobs, knobs: Knobs) -> bool:
    """Tell whether a pod's knobs are right but for its role, P-heavy or D-heavy, which goes by the number of pods."""
    chunks = (max(1, knobs.prefill_heavy_chunk), max(1, knobs.decode_heavy_chunk))
    return accepted.chunk_size in chunks and accepted == wanted.model_copy(update={"chunk_size": accepted.chunk_size})
