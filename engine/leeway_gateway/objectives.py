"""The objectives in force, from a mounted file."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from leeway_core.errors import UserError
from leeway_core.objective import Objective, digest
from pydantic import TypeAdapter, ValidationError

logger = logging.getLogger(__name__)

_OBJECTIVES = TypeAdapter(tuple[Objective, ...])
_LOOK_EVERY_S = 1.0


class Objectives:
    """Follows a JSON list of objectives; while a new version cannot be read, the old one holds."""

    def __init__(self, file: Path, on_load: Callable[[tuple[Objective, ...], str], None]) -> None:
        """Read the file and tell `on_load` of its objectives and their digest, then and after each change.

        Raises UserError if it cannot be read.
        """
        self._file = file
        self._on_load = on_load
        self._content = b""
        self._complaint = ""
        self._load()

    def of(self, name: str | None) -> Objective | None:
        """Return the objective of that name; without a name the first one, and None if there is no such."""
        if name is None:
            return self._objectives[0]
        return next((objective for objective in self._objectives if objective.name == name), None)

    @property
    def stale(self) -> bool:
        """Whether the file has a version that could not be read."""
        return bool(self._complaint)

    @property
    def names(self) -> list[str]:
        """Names of all objectives."""
        return [objective.name for objective in self._objectives]

    async def follow(self) -> None:
        """Look for changes until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                self._load()
                self._complaint = ""
            except UserError as error:
                if str(error) != self._complaint:
                    logger.warning("keeping the objectives: %s", error)
                self._complaint = str(error)

    def _load(self) -> None:
        try:
            content = self._file.read_bytes()
            if content == self._content:
                return
            objectives = _OBJECTIVES.validate_json(content)
        except (OSError, ValidationError) as error:
            raise UserError(f"{self._file} does not hold a JSON list of objectives: {error}") from error
        names = [objective.name for objective in objectives]
        if not names or len(set(names)) < len(names):
            raise UserError(f"{self._file} must hold at least one objective, and no name twice")
        self._content = content
        self._objectives = objectives
        self._on_load(objectives, digest(content))
