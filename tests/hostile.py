"""Strategies of hostile messages, from the descriptors of the protocol: well-formed, and absurd."""

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

M = TypeVar("M", bound=Message)

_UNSIGNED_32 = st.sampled_from([0, 1, 2, 3, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1])
_UNSIGNED_64 = _UNSIGNED_32 | st.sampled_from([2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1])
_SIGNED_64 = st.sampled_from([0, 1, -1, -(2**31), 2**31, 2**63 - 1, -(2**63)])
_FLOATS = st.sampled_from(
    [0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e-300, 1.7e308, -1.7e308]
)
TEXTS = st.sampled_from(
    [
        "",
        "x",
        "run",
        "transitions",
        "\x00",
        "\x1b[2J\n\r\u202e",
        "{}",
        "[]",
        '{"a": NaN}',
        "9" * 5_000,
        "[" * 10_000,
        "x = " + "[" * 10_000,
        ".".join("a" * 2_000) + " = 1",
        'learners = 4000000000\n[stragglers]\nname = "none"',
        'learners = 4\n[stragglers]\nname = "fixed_k"\nk = "x"',
        'learners = 4\n[stragglers]\nname = "exponential"\nmean_s = 1e308',
        "seed = 99999999999999999999999999",
        "../../etc/passwd",
        "10.0.0.1:99999999999",
        "x" * 100_000,
    ]
)
_BYTES = st.sampled_from([b"", b"\0", b"\xff" * 15, b"\xff" * 16, b"\0" * 17, b"x" * 10_000])

_KINDS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_UINT32: _UNSIGNED_32,
    FieldDescriptor.TYPE_FIXED32: _UNSIGNED_32,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED_64,
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED_64,
    FieldDescriptor.TYPE_INT32: st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]),
    FieldDescriptor.TYPE_INT64: _SIGNED_64,
    FieldDescriptor.TYPE_SINT64: _SIGNED_64,
    FieldDescriptor.TYPE_DOUBLE: _FLOATS,
    FieldDescriptor.TYPE_FLOAT: _FLOATS.map(lambda value: value if abs(value) < 1e38 else 1e38),
    FieldDescriptor.TYPE_ENUM: st.sampled_from([0, 1, 2, 3, 4, 99, 2**31 - 1]),
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: _BYTES,
}


@st.composite
def hostile(draw: st.DrawFn, honest: M, *, spared: frozenset[str] = frozenset()) -> M:
    """A message of the kind of ``honest``, which is spoilt in some fields, or in all.

    Args:
        draw: Draws.
        honest: A message, perhaps an empty one.
        spared: Names of fields that stay as they are, at any depth.
    """
    message = type(honest)()
    message.CopyFrom(honest)
    _spoil(draw, message, spared=spared, depth=3)
    return message


def _spoil(draw: st.DrawFn, message: Message, *, spared: frozenset[str], depth: int) -> None:
    """Spoil about one field in three."""
    for field in message.DESCRIPTOR.fields:
        if field.name in spared or draw(st.integers(0, 2)):
            continue
        if draw(st.integers(0, 4)) == 0:
            message.ClearField(field.name)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            _spoil_map(draw, message, field, depth=depth)
        elif field.message_type is not None:
            _spoil_messages(draw, message, field, spared=spared, depth=depth)
        elif field.is_repeated:
            values = draw(st.lists(_KINDS[field.type], max_size=3)) * draw(
                st.sampled_from([1, 1, 1, 200])
            )
            message.ClearField(field.name)
            getattr(message, field.name).extend(values)
        else:
            setattr(message, field.name, draw(_KINDS[field.type]))


def _spoil_map(draw: st.DrawFn, message: Message, field: Any, *, depth: int) -> None:
    entries = field.message_type.fields_by_name
    if entries["value"].message_type is not None:  # a Struct's
        key = draw(TEXTS)
        if depth:
            _spoil(draw, getattr(message, field.name)[key], spared=frozenset(), depth=depth - 1)
        return
    for _ in range(draw(st.integers(0, 3))):
        key, value = draw(_KINDS[entries["key"].type]), draw(_KINDS[entries["value"].type])
        getattr(message, field.name)[key] = value


def _spoil_messages(
    draw: st.DrawFn, message: Message, field: Any, *, spared: frozenset[str], depth: int
) -> None:
    if not depth:
        return
    held = getattr(message, field.name)
    if not field.is_repeated:
        held.SetInParent()
        _spoil(draw, held, spared=spared, depth=depth - 1)
        return
    for _ in range(draw(st.integers(0, 2))):
        held.add()
    for each in held[:3]:
        _spoil(draw, each, spared=spared, depth=depth - 1)


def garbled(data: bytes) -> st.SearchStrategy[bytes]:
    """Bytes that are cut short or changed, and perhaps no message any more."""
    cut = st.integers(0, max(0, len(data) - 1)).map(lambda end: data[:end])
    junk = st.binary(min_size=1, max_size=20)
    return junk | cut | st.builds(lambda end, more: end + more, cut, junk)
