"""The objects that a profile needs, as pure functions of the profile."""

from leeway_operator.children.configuration import boot_configuration
from leeway_operator.children.desired import children
from leeway_operator.children.secret import token_secret

__all__ = ["boot_configuration", "children", "token_secret"]
