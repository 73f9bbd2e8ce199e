"""Format of a journal's segment: records of JSON facts and updates, each with a checksum."""

import json
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np

from fullrank.common.errors import CheckpointUnusable, Malformed, VersionMismatch
from fullrank.common.foreign import Bounds, parse_json, regular
from fullrank.common.rows import Rows
from fullrank.common.types import JSON, FloatArray

HEADER = struct.Struct("<4sIQII")
"""Mark, bytes of facts, bytes of updates, units, CRC-32C of everything but itself."""
_KIND, _VERSION = b"FRJ", b"1"
MARK = _KIND + _VERSION

FACTS = Bounds(size=2**28)
"""Bounds of the facts of a record."""

CONDEMNED = "condemned"
"""Fact of a record that condemns its iteration and all after it: the reason."""
CUT_SHORT = "cut short"
"""Fault of a segment whose last record was being written when its controller was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A committed iteration, or one that is condemned with all after it."""

    iteration: int
    facts: JSON
    updates: FloatArray | None
    """Shape (M, P) float32; None if they were too large to store."""

    @property
    def condemned(self) -> bool:
        """True if the iterations from this one on, as far as they were stored, do not stand."""
        return CONDEMNED in self.facts


def encode(iteration: int, facts: JSON, updates: Rows, *, stored: bool) -> tuple[bytes, bytes]:
    """A record in two pieces; the second, the updates, is not copied again."""
    text = json.dumps({"iteration": iteration, **facts}).encode()
    data = np.asarray(updates).astype("<f4", copy=False).tobytes() if stored else b""
    lengths = (MARK, len(text), len(data), updates.shape[0])
    checksum = google_crc32c.extend(google_crc32c.value(HEADER.pack(*lengths, 0) + text), data)
    return HEADER.pack(*lengths, checksum) + text, data


class SegmentReader:
    """Iterates over the records of a segment up to the first that is not whole.

    Updates are mapped, not read, until they are used.
    """

    def __init__(self, path: Path) -> None:
        self.fault = ""
        """Why the iteration ended before the end of the file; else empty."""
        self.path = path

    def __iter__(self) -> Iterator[Entry]:
        try:
            content = self._mapped()
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self.path.is_symlink():
                raise
            self.fault = f"unreadable ({error.strerror})"
            return
        start = 0
        while start < len(content):
            try:
                entry, start = _decode(content, start)
            except _NotWhole as error:
                self.fault = str(error)
                return
            except _OtherVersion as error:
                raise VersionMismatch(
                    f"{self.path} has records of format {error}, and this version of Fullrank "
                    f"reads {MARK!r}: install the version that wrote it, or a later one"
                ) from None
            yield entry

    def _mapped(self) -> mmap.mmap | bytes:
        """Map the segment; nothing is mapped of an empty one.

        Raises:
            OSError: It cannot be read, is no regular file, or was pruned meanwhile.
        """
        with open(self.path, "rb", opener=regular) as file:
            if os.fstat(file.fileno()).st_size:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return b""


def decode_first(content: bytes, *, origin: str) -> tuple[JSON, int]:
    """Facts of the first record of an object, and the position after it.

    Raises:
        CheckpointUnusable: It is damaged; ``origin`` names it.
        VersionMismatch: A later version of Fullrank wrote it.
    """
    try:
        entry, end = _decode(content, 0)
    except _NotWhole as error:
        raise CheckpointUnusable(f"{origin}: {error}; restore it from a copy") from None
    except _OtherVersion as error:
        raise VersionMismatch(f"{origin} has a record of format {error}, not {MARK!r}") from None
    return entry.facts, end


class _OtherVersion(Exception):
    """A whole record of another format; the message is its mark."""


class _NotWhole(Exception):
    """No whole record lies at this position; the message is the fault."""


def _decode(content: mmap.mmap | bytes, start: int) -> tuple[Entry, int]:
    """The record at ``start``, and the position after it."""
    body = start + HEADER.size
    if body > len(content):
        raise _NotWhole(CUT_SHORT)
    mark, text_size, data_size, units, checksum = HEADER.unpack_from(content, start)
    data, end = body + text_size, body + text_size + data_size
    if not mark.startswith(_KIND):
        raise _NotWhole("damaged")
    if end > len(content):
        raise _NotWhole(CUT_SHORT)
    lengths = HEADER.pack(mark, text_size, data_size, units, 0)
    if google_crc32c.value(lengths + content[body:end]) != checksum:
        raise _NotWhole("damaged")
    if mark != MARK:
        raise _OtherVersion(repr(mark))
    try:
        facts = parse_json(content[body:data], origin="the record", bounds=FACTS)
        updates = None
        if data_size:
            updates = np.frombuffer(content, "<f4", data_size // 4, data).reshape(units, -1)
        iteration = facts.pop("iteration")
        if type(iteration) is not int or not 0 <= iteration < 2**63:
            raise TypeError("its iteration is no number")
        return Entry(iteration=iteration, facts=facts, updates=updates), end
    except (Malformed, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _NotWhole(f"not a journal ({error})") from error
