"""One visit of a profile: observe, decide, check again, record, push, read back, report."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from leeway_core.decision import Decision
from leeway_core.record import Record
from leeway_core.snapshot import Snapshot

from leeway_operator.children.configuration import objectives_digest
from leeway_operator.cluster import ApiError, Cluster
from leeway_operator.fleet import Fleet
from leeway_operator.keeper import Keeper
from leeway_operator.knobs import obeying
from leeway_operator.memory import Memory
from leeway_operator.metrics import tell
from leeway_operator.names import path_to
from leeway_operator.observation import Observation
from leeway_operator.pod_client import PodClient
from leeway_operator.pods import Pod
from leeway_operator.profile import Profile
from leeway_operator.records import Records
from leeway_operator.report import report, unvisited
from leeway_operator.seen import Seen
from leeway_operator.snapshot import no_telemetry, snapshot_of
from leeway_operator.spec import Spec
from leeway_operator.status import Status
from leeway_operator.telemetry import Scope, read
from leeway_operator.tuner_client import TunerClient, TunerError

logger = logging.getLogger(__name__)

LONGEST_READING_WINDOWS = 5
"""How many windows a reading reaches back at most, while the same knobs are in force for long."""

LASTING_FAILURES = 3
"""How many visits in a row must fail for the status to tell, and for a trial to end: a server that restarts is no
news."""


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Brings what a profile asks for and what there is together, a visit at a time.

    A visit may end anywhere: the next one, of this operator or of another, ends in the same place.
    """

    cluster: Cluster
    keeper: Keeper
    records: Records
    pods: PodClient
    tuner: TunerClient
    clock: Callable[[], float] = time.time

    async def visit(self, profile: Profile, memory: Memory) -> None:
        """Visit a profile once; raises ApiError where the API server is in the way, and anything for a bug.

        Where that lasts, it is reported, and no candidate stays in force.
        """
        now_s = self.clock()
        try:
            await self._visit(profile, memory, now_s)
        except Exception as error:
            memory.failures += 1
            if memory.failures >= LASTING_FAILURES:
                await self._end_trial(profile, memory, now_s)
                status = unvisited(profile, memory.status or profile.status, *_reason(error), now_s)
                await self._write_status(profile, memory, status)
            raise
        memory.failures = 0

    async def _end_trial(self, profile: Profile, memory: Memory, now_s: float) -> None:
        """Put the incumbent in force, as far as that can be done while visits fail."""
        try:
            record = await self.records.read(profile, memory, now_s)
            record = record.back(now_s) if record.candidate else record
            await self.records.write(profile, memory, record)
            fleet = await self._fleet(profile, memory.token)
            await fleet.push(record)
        except ApiError as error:
            logger.warning("%s/%s: the incumbent cannot be put in force: %s", profile.namespace, profile.name, error)
        except Exception:
            logger.exception("%s/%s: the incumbent cannot be put in force", profile.namespace, profile.name)

    async def _fleet(self, profile: Profile, token: str) -> Fleet:
        items = await self.cluster.items(
            path_to("Pod", profile.namespace), labels=profile.names.selector("engine", "gateway")
        )
        return await Fleet.look(self.pods, token, profile.names, profile.spec.replicas, map(Pod.read, items))

    async def _visit(self, profile: Profile, memory: Memory, now_s: float) -> None:
        token = await self.keeper.token(profile, memory, now_s)
        record = await self.records.read(profile, memory, now_s)
        record = obeying(record, profile.spec, now_s)
        await self.records.write(profile, memory, record)
        await self.keeper.keep(profile, memory, now_s)
        fleet = await self._fleet(profile, token)
        snapshot = await self._snapshot(profile, memory, record, fleet.observed, now_s)
        decision, failure = await self._decide(snapshot, memory)
        memory.sequence = decision.sequence if decision else memory.sequence
        wanted = decision.record if decision else record.back(now_s) if record.candidate else record
        wanted = fleet.observed.overruled(wanted, now_s)
        if wanted != record and not await self._stands(profile):
            return
        await self.records.write(profile, memory, wanted)
        refusals = await fleet.push(wanted)
        if refusals and wanted.in_force.generation != record.in_force.generation:
            # What one pod refuses is taken back on all.
            wanted = record.back(self.clock(), above=wanted.newest_generation)
            await self.records.write(profile, memory, wanted)
            refusals += await fleet.push(wanted)
        fleet = await fleet.look_again()
        seen = Seen(
            observed=fleet.observed,
            record=wanted,
            snapshot=snapshot,
            decision=decision,
            tuner=self.tuner.service,
            failure=failure,
            push_refusal="; ".join(dict.fromkeys(refusals)),
            child_refusals=tuple(memory.refusals),
            no_pods_because=await self._obstacle(profile) if _lacks_pods(profile.spec, fleet.observed) else "",
        )
        tell(profile.namespace, profile.name, wanted.in_force, seen.action)
        await self._write_status(profile, memory, report(profile, memory.status or profile.status, seen, now_s))

    async def _obstacle(self, profile: Profile) -> str:
        """Return why a pod cannot be made, where Kubernetes tells."""
        events = await self.cluster.items(path_to("Event", profile.namespace), fields="reason=FailedCreate")
        mine = [event for event in events if profile.names.makes_pods(event["involvedObject"])]
        latest = max(mine, key=lambda event: event.get("lastTimestamp") or "", default={})
        return str(latest.get("message", ""))

    async def _snapshot(
        self, profile: Profile, memory: Memory, record: Record, observed: Observation, now_s: float
    ) -> Snapshot:
        url = profile.spec.telemetry.prometheus.url
        names = tuple(objective.name for objective in profile.spec.objectives)
        telemetry = no_telemetry(names)
        if url is not None:
            live = frozenset(pod.name for pod in observed.gateways if pod.ready)
            earliest_s = now_s - LONGEST_READING_WINDOWS * profile.spec.tuning.window_seconds
            from_s = max(record.settled_at_s, earliest_s)
            scope = Scope(profile.namespace, live, names, record.started_at_s if record.trying else None)
            telemetry = await asyncio.to_thread(read, url, scope, objectives_digest(profile), from_s, now_s)
        memory.sequence = 1 + max(memory.sequence, *(item.sequence for item in profile.status.decisions or ()), 0)
        return snapshot_of(
            profile, sequence=memory.sequence, record=record, observed=observed, telemetry=telemetry, now_s=now_s
        )

    async def _decide(self, snapshot: Snapshot, memory: Memory) -> tuple[Decision | None, str]:
        """Return the tuner's decision, or None and why there is none."""
        if snapshot.mode == "Observe":
            return None, ""
        if memory.failures >= LASTING_FAILURES:
            return None, "visits have failed, so nothing is tried before one succeeds"
        try:
            decision = await self.tuner.decide(snapshot)
        except TunerError as error:
            return None, str(error)
        decided = (decision.record.incumbent, decision.record.candidate or decision.record.incumbent)
        if not all(map(snapshot.ranges.hold, decided)):
            return None, "the tuner decided on knobs outside their bounds"
        if decision.record.policies != snapshot.record.policies:
            return None, "the tuner changed policies, which only the profile may"
        return decision, ""

    async def _stands(self, profile: Profile) -> bool:
        """Check, before knobs move, that the profile is still the one that this was decided for."""
        body = await self.cluster.get(path_to("ServingProfile", profile.namespace, profile.name))
        if body is None:
            return False
        now = Profile.read(body)
        return (now.uid, now.generation, now.leaving) == (profile.uid, profile.generation, False)

    async def _write_status(self, profile: Profile, memory: Memory, status: Status) -> None:
        if status == (memory.status or profile.status):
            return
        path = f"{path_to('ServingProfile', profile.namespace, profile.name)}/status"
        await self.cluster.apply(
            path,
            {
                "apiVersion": "leeway.dev/v1alpha1",
                "kind": "ServingProfile",
                "metadata": {"name": profile.name, "namespace": profile.namespace, "uid": profile.uid},
                "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
            },
        )
        memory.status = status


def _reason(error: Exception) -> tuple[str, str]:
    """Return the reason and the message of visits that end so."""
    words = " ".join(str(error).split())
    return ("ApiError", words) if isinstance(error, ApiError) else ("VisitFailed", f"{type(error).__name__}: {words}")


def _lacks_pods(spec: Spec, observed: Observation) -> bool:
    """Tell whether there are fewer pods than asked for, ready or not."""
    return len(observed.engines) < spec.replicas or len(observed.gateways) < spec.gateway.replicas
