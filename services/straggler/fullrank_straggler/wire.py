"""Locate the fields of encoded messages without decoding them, and flip a byte of a vector.

The wire format is a sequence of fields (protobuf.dev, Encoding): a tag, then a varint, 4 or 8
bytes, or a length and that many bytes. A chunk is skipped by its length; its data are neither read
nor copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
from google.protobuf.message import DecodeError

from fullrank.config.faults import CorruptFault
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.tensor_pb2 import Chunk

MALFORMED = (ValueError, DecodeError)
"""Exceptions raised if the bytes are not such a message."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}

_LEARNER = pb.LearnerMessage.DESCRIPTOR.fields_by_name
_CODED, _UNITS = _LEARNER["coded"].number, _LEARNER["units"].number
_CHUNKS = _LEARNER["chunks"].number
_CHUNK = Chunk.DESCRIPTOR.fields_by_name
_OFFSET, _TOTAL, _DATA = (_CHUNK[name].number for name in ("offset", "total", "data"))
_CRC32C = _CHUNK["crc32c"].number


class FieldSpan(NamedTuple):
    """One field of an encoded message."""

    number: int
    start: int
    """Offset of its tag."""
    value: int
    """Its number if it is a varint, else the offset of its content."""
    end: int
    """One past its last byte."""


class ChunkHead(NamedTuple):
    """Position of a chunk in its vector and in the message that carries it."""

    offset: int
    total: int
    data: int
    """Offset of its data in the message."""
    end: int
    crc32c: int
    """Offset of its checksum in the message; 0 if it has none."""

    @property
    def last(self) -> bool:
        """True if it completes its vector."""
        return self.offset + self.end - self.data >= self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerParts:
    """Parts of a learner's message that concern its coded vector."""

    coded: pb.Coded | None
    """Announcement of the vector."""
    chunks: tuple[ChunkHead, ...]
    units: tuple[FieldSpan, ...]

    def split(self, message: bytes) -> tuple[bytes, bytes]:
        """Split off the finished units: two messages, the units and the rest."""
        units = b"".join(message[field.start : field.end] for field in self.units)
        cuts = [0, *(cut for field in self.units for cut in (field.start, field.end)), len(message)]
        rest = zip(cuts[::2], cuts[1::2], strict=True)
        return units, b"".join(message[start:end] for start, end in rest)


def read_learner(message: bytes) -> LearnerParts | None:
    """The parts of an encoded LearnerMessage; None if it carries no part of a vector.

    Raises:
        MALFORMED: It is not such a message.
    """
    coded, chunks, units = None, [], []
    for field in fields(message, 0, len(message)):
        if field.number == _CODED:
            coded = pb.Coded.FromString(message[field.value : field.end])
        elif field.number == _CHUNKS:
            chunks.append(_chunk(message, field))
        elif field.number == _UNITS:
            units.append(field)
    if coded is None and not chunks:
        return None
    return LearnerParts(coded=coded, chunks=tuple(chunks), units=tuple(units))


def read_controller(message: bytes) -> pb.ControllerMessage:
    """The part of an encoded ControllerMessage before its chunks.

    Raises:
        MALFORMED: It is not such a message.
    """
    said = pb.ControllerMessage()
    for field in fields(message, 0, len(message)):
        if field.number == _CHUNKS:
            break
        said.MergeFromString(message[field.start : field.end])
    return said


def _chunk(message: bytes, chunk: FieldSpan) -> ChunkHead:
    offset = total = crc32c = 0
    data = end = chunk.end
    for field in fields(message, chunk.value, chunk.end):
        if field.number == _OFFSET:
            offset = field.value
        elif field.number == _TOTAL:
            total = field.value
        elif field.number == _CRC32C:
            crc32c = field.value
        elif field.number == _DATA:
            data, end = field.value, field.end
    return ChunkHead(offset=offset, total=total, data=data, end=end, crc32c=crc32c)


def fields(message: bytes, start: int, end: int) -> Iterator[FieldSpan]:
    """The fields of the message encoded in ``message[start:end]``.

    Raises:
        ValueError: It is cut short, or holds a wire type that proto3 does not have.
    """
    position = start
    while position < end:
        tag, value = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, after = _varint(message, value)
        elif kind == _LENGTH:
            length, value = _varint(message, value)
            after = value + length
        elif kind in _FIXED_BYTES:
            after = value + _FIXED_BYTES[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if after > end:
            raise ValueError("a field is cut short")
        yield FieldSpan(tag >> 3, position, value, after)
        position = after


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """The number at ``position``, and the offset after it."""
    value = shift = 0
    while shift < 70:
        if position >= len(message):
            raise ValueError("a number is cut short")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number has more than 64 bits")


def corrupted(message: bytes, chunk: ChunkHead, fault: CorruptFault) -> bytes:
    """The message with the byte inverted; unchanged if this chunk does not contain it."""
    position = chunk.data + (fault.byte % chunk.total if chunk.total else 0) - chunk.offset
    if not chunk.data <= position < chunk.end:
        return message
    changed = bytearray(message)
    changed[position] ^= 0xFF
    if fault.mend_checksum and chunk.crc32c:
        checksum = google_crc32c.value(bytes(changed[chunk.data : chunk.end]))
        changed[chunk.crc32c : chunk.crc32c + 4] = checksum.to_bytes(4, "little")
    return bytes(changed)
