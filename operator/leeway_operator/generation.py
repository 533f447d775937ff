"""How kopf knows what it has handled: by the generation that the status was written for."""

from collections.abc import Iterable

import kopf


class ObservedGeneration(kopf.DiffBaseStorage):
    """Takes a profile for changed when its generation is not the one observed, so no copy of the spec is kept."""

    def build(
        self,
        *,
        body: kopf.Body,
        extra_fields: Iterable[kopf.FieldSpec] | None = None,  # noqa: ARG002
    ) -> kopf.BodyEssence:
        """Return what identifies the profile as it is now."""
        return self._essence(body.metadata.get("generation"))

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return what identifies the profile as it was handled last, or None for a new one."""
        observed = body.status.get("observedGeneration")
        return None if observed is None else self._essence(observed)

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Do nothing: the handler writes `observedGeneration` with the rest of the status."""

    @staticmethod
    def _essence(generation: object) -> kopf.BodyEssence:
        return kopf.BodyEssence({"metadata": {"generation": generation}})  # type: ignore[typeddict-unknown-key]
