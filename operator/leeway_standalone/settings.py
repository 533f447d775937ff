"""What one process of the standalone hands to the next, as the only argument of its command line."""

import json
from dataclasses import asdict, dataclass
from typing import Self

from leeway_standalone.state import Ports


@dataclass(frozen=True)
class LaunchSettings:
    """What `leeway up` asks for."""

    state: str
    ports: Ports
    binaries: dict[str, str]
    manifests: tuple[str, ...] = ()
    chart_values: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        return cls(**{**data, "ports": Ports(**data["ports"])})

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class NodeSettings:
    """What the launcher tells the node; descriptors are listening sockets on the host's loopback."""

    state: str
    binaries: dict[str, str]
    api_port: int
    descriptors: dict[str, int]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))
