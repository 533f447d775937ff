"""The base of every data model that crosses a process or is read from Kubernetes."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """An immutable value: snake_case in Python, camelCase outside; a field's docstring is its description."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, use_attribute_docstrings=True
    )
