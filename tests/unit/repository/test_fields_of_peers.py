"""docs/security.md says of every field that a peer sends what its worst value does."""

import re
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor

from fullrank.v1 import controller_pb2, monitor_pb2, replay_pb2, straggler_pb2

PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
HEADING = "## What each field can do"


def messages() -> Iterator[Descriptor]:
    """Every message of this project that a call carries, in either direction."""
    found: dict[str, Descriptor] = {}

    def visit(message: Descriptor) -> None:
        named = message.full_name.startswith("fullrank.v1.")
        if not named or message.full_name in found:
            return
        found[message.full_name] = message
        for field in message.fields:
            if field.message_type is not None:
                visit(field.message_type)

    for module in (controller_pb2, monitor_pb2, replay_pb2, straggler_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                visit(method.input_type)
                visit(method.output_type)
    return (each for each in found.values() if not each.GetOptions().map_entry)


def stated() -> dict[str, set[str]]:
    """Fields that the page names after each message, up to the next message or entry."""
    section = PAGE.read_text(encoding="utf-8").split(HEADING, 1)[1].split("\n## ", 1)[0]
    fields: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=\* )", section):
        for part in re.split(r"(?=\*\*\w+\*\*)", entry):
            if named := re.match(r"\*\*(\w+)\*\*", part):
                fields.setdefault(named[1], set()).update(re.findall(r"`(\w+)`", part))
    return fields


def test_the_worst_value_of_every_field_is_stated() -> None:
    page = stated()
    missing = [
        f"{message.name}.{field.name}"
        for message in messages()
        for field in message.fields
        if field.name not in page.get(message.name, set())
    ]
    assert not missing, f"docs/security.md, '{HEADING}', says nothing of {missing}"
    assert {message.name for message in messages()} == set(page)
