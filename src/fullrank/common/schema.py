"""Schemas of data from elsewhere: bounded kinds of fields, and one error for what does not fit.

A reader passes what it was sent through the ``TypeAdapter`` of a dataclass whose fields have these
kinds, and goes on with values of which every one is in range.
"""

from typing import Annotated, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fullrank.common.errors import Malformed
from fullrank.common.foreign import brief, shown

T = TypeVar("T")

ORDINALS = 2**63
"""One past the largest ordinal."""
Ordinal: TypeAlias = Annotated[int, Field(ge=0, lt=ORDINALS)]
"""An iteration, a term, an epoch, or a number of bytes."""
Index: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
"""A learner, a row, or another thing of which a run has many."""
Name: TypeAlias = Annotated[str, Field(max_length=256)]
"""A short text, such as the key of a statistic."""

BOUNDED = ConfigDict(allow_inf_nan=False, str_max_length=2**16)
"""Configuration of a schema: its numbers are finite, its texts bounded. A dataclass states it as
``__pydantic_config__``; those inside it have it, too."""


def validated(schema: TypeAdapter[T], facts: object, *, origin: str) -> T:
    """Return facts from elsewhere as values of a schema.

    Args:
        schema: The schema.
        facts: The facts; text or bytes are JSON.
        origin: Names their source in messages.

    Raises:
        Malformed: They do not fit; the message names the first field that does not, and its value.
    """
    try:
        if isinstance(facts, str | bytes):
            return schema.validate_json(facts)
        return schema.validate_python(facts)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        place = brief(".".join(map(str, fault["loc"]))) if fault["loc"] else ""
        reason = brief(fault["msg"].removeprefix("Value error, "))
        value = (
            "" if fault["type"] in ("missing", "json_invalid") else f", not {shown(fault['input'])}"
        )
        raise Malformed(f"{origin}{': ' * bool(place)}{place}: {reason}{value}") from None
