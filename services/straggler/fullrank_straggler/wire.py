"""Read the messages of a Work stream, and flip a byte of a vector."""

import google_crc32c
from google.protobuf.message import DecodeError

from fullrank.config.faults import CorruptFault
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.tensor_pb2 import Chunk


def read_learner(message: bytes) -> pb.LearnerMessage | None:
    """The message of a learner; None if it carries no part of a vector, or is no such message."""
    try:
        said = pb.LearnerMessage.FromString(message)
    except DecodeError:
        return None
    return said if said.HasField("coded") or said.chunks else None


def read_controller(message: bytes) -> pb.ControllerMessage | None:
    """The message of the controller; None if it is no such message."""
    try:
        return pb.ControllerMessage.FromString(message)
    except DecodeError:
        return None


def is_last(chunk: Chunk) -> bool:
    """True if a chunk completes its vector."""
    return chunk.offset + len(chunk.data) >= chunk.total


def split_units(message: pb.LearnerMessage) -> pb.LearnerMessage:
    """Take the finished units out of a message; returns a message with them."""
    units = pb.LearnerMessage(units=message.units)
    message.ClearField("units")
    return units


def corrupt(chunk: Chunk, fault: CorruptFault) -> bool:
    """Invert the byte of the vector if this chunk contains it; returns whether it does."""
    position = (fault.byte % chunk.total if chunk.total else 0) - chunk.offset
    if not 0 <= position < len(chunk.data):
        return False
    data = bytearray(chunk.data)
    data[position] ^= 0xFF
    chunk.data = bytes(data)
    if fault.mend_checksum:
        chunk.crc32c = google_crc32c.value(chunk.data)
    return True
