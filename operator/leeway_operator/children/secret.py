"""The Secret with which knobs are pushed."""

from base64 import b64decode, b64encode

from leeway_operator.children.engine import COMPONENT, TOKEN_KEY
from leeway_operator.children.parts import Object, child
from leeway_operator.profile import Profile


def token_secret(profile: Profile, token: str) -> Object:
    """Return the Secret that holds this token."""
    data = {TOKEN_KEY: b64encode(token.encode()).decode()}
    return child(profile, "v1", "Secret", profile.names.token, COMPONENT, type="Opaque", data=data)


def token_in(secret: Object | None) -> str:
    """Return the token in a Secret, empty if there is none."""
    encoded = ((secret or {}).get("data") or {}).get(TOKEN_KEY, "")
    return b64decode(encoded).decode("ascii", "replace").strip()
