"""What an image name means where containers are processes: an environment of this machine."""

import json
from dataclasses import dataclass, field
from pathlib import Path

IMAGE_UID = 65532
"""The user of Leeway's own image, as in the Dockerfile."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ImageError(ValueError):
    """The image cannot be used as asked; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """An environment: its directories, its variables, and the entrypoint of containers that set no command."""

    entrypoint: list[str] = field(default_factory=list)
    binds: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    version: str = ""
    """The one tag there is; empty for the plain machine, where any will do."""

    @property
    def uid(self) -> int | None:
        """The user that its containers run as by default; None for the plain machine."""
        return IMAGE_UID if self.version else None


class Images:
    """The images that are known by name; every other name means the plain machine."""

    def __init__(self, known: dict[str, Image]) -> None:
        """Know these repositories."""
        self.known = known

    @classmethod
    def read(cls, path: Path) -> "Images":
        """Read a JSON object of repository names, each with `entrypoint`, `binds`, `env` and `version`."""
        return cls({name: Image(**fields) for name, fields in json.loads(path.read_text()).items()})

    def find(self, reference: str) -> Image:
        """The environment that `reference` means; ImageError if it is another version of a known one."""
        repository, tag = split_reference(reference)
        image = self.known.get(repository, Image())
        if image.version not in ("", tag):
            raise ImageError(
                f"image {reference}: the installation that runs here is version {image.version};"
                f" use the tag {image.version}, or install the other version and run it"
            )
        return image


def split_reference(reference: str) -> tuple[str, str]:
    """Repository, and tag or digest (`latest` if there is neither)."""
    name, _, digest = reference.partition("@")
    head, colon, tag = name.rpartition(":")
    repository, tag = (head, tag) if colon and "/" not in tag else (name, "latest")
    return repository, digest or tag


def full_command(image: Image, reference: str, command: list[str], args: list[str]) -> list[str]:
    """What a container executes: its own command, else the image's entrypoint, with its arguments."""
    argv = [*(command or image.entrypoint), *args]
    if not command and not image.entrypoint:
        raise ImageError(
            f"image {reference}: containers run here as local processes, so an image has no entrypoint of its own;"
            " set command in the container"
        )
    return argv
