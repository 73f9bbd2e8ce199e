"""Refuse changes of the protocol that an older peer would misread; ``--write`` renews the baseline.

``protos/baseline.json`` holds the protocol of the last release: fields by number, values of enums,
methods with their types and roles. What it names must stay as it is, or processes of two releases
could not talk, not even to say that they are of two releases. Additions are free. The rules are
those of buf's category WIRE_JSON, and roles, which are Fullrank's own.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)
from google.protobuf.json_format import MessageToDict

import fullrank.v1
from fullrank.v1 import access_pb2

BASELINE = Path(__file__).resolve().parents[1] / "protos" / "baseline.json"


def protocol() -> dict[str, Any]:
    """Describe the generated stubs: each element by its full name."""
    described: dict[str, Any] = {}
    for module in iter_modules(fullrank.v1.__path__):
        if module.name.endswith("_pb2"):
            file = FileDescriptorProto()
            import_module(f"fullrank.v1.{module.name}").DESCRIPTOR.CopyToProto(file)
            described |= dict(_of_file(file))
    return described


def broken(baseline: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Name every element of the baseline that is gone or has changed."""
    faults = []
    for name, before in sorted(baseline.items()):
        now = current.get(name)
        if now is None:
            faults.append(f"{name} is gone; keep it, marked as deprecated")
        elif now != before:
            faults.append(f"{name} was {_text(before)} and is {_text(now)}; add another instead")
    return faults


def _of_file(file: FileDescriptorProto) -> Iterator[tuple[str, Any]]:
    for message in file.message_type:
        yield from _of_message(message, file.package)
    for enum in file.enum_type:
        yield from _of_enum(enum, file.package)
    for service in file.service:
        for method in service.method:
            name = f"rpc {file.package}.{service.name}.{method.name}"
            signature = MethodDescriptorProto()
            signature.CopyFrom(method)
            signature.ClearField("options")
            yield name, MessageToDict(signature)
            for role in method.options.Extensions[access_pb2.access].roles:
                yield f"{access_pb2.Role.Name(role)} of {name}", {}


def _of_message(message: DescriptorProto, scope: str) -> Iterator[tuple[str, Any]]:
    name = f"{scope}.{message.name}"
    yield f"message {name}", {}
    oneofs = [oneof.name for oneof in message.oneof_decl]
    for field in message.field:
        yield f"field {field.number} of {name}", _of_field(field, oneofs)
    for nested in message.nested_type:
        yield from _of_message(nested, name)
    for enum in message.enum_type:
        yield from _of_enum(enum, name)


def _of_field(field: FieldDescriptorProto, oneofs: list[str]) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": field.type_name or FieldDescriptorProto.Type.Name(field.type),
        "repeated": field.label == FieldDescriptor.LABEL_REPEATED,
        "optional": field.proto3_optional,
        "oneof": oneofs[field.oneof_index] if field.HasField("oneof_index") else "",
    }


def _of_enum(enum: EnumDescriptorProto, scope: str) -> Iterator[tuple[str, Any]]:
    for value in enum.value:
        yield f"value {value.number} of {scope}.{enum.name}", {"name": value.name}


def _text(element: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in element.items() if value) or "there"


def main() -> int:
    """Compare the protocol with the baseline, or write it as the baseline of a release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew the baseline, at a release")
    if parser.parse_args().write:
        BASELINE.write_text(json.dumps(protocol(), indent=1, sort_keys=True) + "\n")
        return 0
    faults = broken(json.loads(BASELINE.read_text()), protocol())
    for fault in faults:
        print(f"protos: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
