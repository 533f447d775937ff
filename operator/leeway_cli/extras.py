"""The optional packages that a subcommand rests on."""

import re
from collections.abc import Callable, Iterable
from functools import wraps
from importlib.metadata import PackageNotFoundError, distribution, requires
from typing import ParamSpec, TypeVar

from leeway_core.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")


def needing(extra: str, command: Callable[P, T]) -> Callable[P, T]:
    """Wrap a subcommand so that it says what to install where packages of its extra are missing."""

    @wraps(command)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        if missing := missing_packages(requires("leeway") or (), extra):
            raise UserError(
                f"`leeway {command.__name__}` needs packages that are not installed: {', '.join(missing)}. "
                f"Install Leeway again with its extra `{extra}`, such as leeway[{extra}]."
            )
        return command(*args, **kwargs)

    return checked


def missing_packages(requirements: Iterable[str], extra: str) -> list[str]:
    """Names of the packages that `extra` asks for and that are not installed, from a distribution's requirements."""
    names = [
        re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        for requirement in requirements
        if re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", requirement)
    ]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
