"""Corruption of one byte in the data of a chunk."""

import google_crc32c

from fullrank.config.faults import CorruptFault
from fullrank_straggler.wire import ChunkHead


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
