"""Sequences of a table's writers: which of their episodes the table has stored.

Episodes of one writer rise in sequence. A sequence up to the writer's last one is not stored again:
it is a repeat if the table has stored it, and otherwise was passed over.
"""

from collections import OrderedDict
from dataclasses import dataclass

WINDOW = 1024
"""Most episodes of a writer that are sent and not settled."""
REMEMBERED = 4096
"""Writers that are remembered though the table holds none of their episodes any more."""


@dataclass(slots=True)
class _Sequences:
    """Sequences of one writer."""

    last: int = 0
    position: int = -1
    """Position of the last one's last row."""
    held: int = 0
    """Bit k tells whether sequence ``last - k`` is stored; there are ``WINDOW`` of them."""

    def store(self, sequence: int, position: int) -> None:
        """Note that a later sequence was stored."""
        passed = min(sequence - self.last, WINDOW)
        self.held = (self.held << passed | 1) % 2**WINDOW
        self.last, self.position = sequence, position

    def holds(self, sequence: int) -> bool:
        """True if the table is known to have stored it."""
        return 0 <= (age := self.last - sequence) < WINDOW and bool(self.held >> age & 1)


class WriterSequences:
    """Stored sequences by writer; of those before a writer's newest ``WINDOW`` nothing is known."""

    def __init__(self) -> None:
        self._writers: OrderedDict[int, _Sequences] = OrderedDict()

    def last_of(self, writer: int) -> int:
        """Last sequence of a writer that was stored, 0 if none is known."""
        known = self._writers.get(writer)
        return known.last if known is not None else 0

    def holds(self, writer: int, sequence: int) -> bool:
        """True if the table is known to have stored a writer's sequence."""
        known = self._writers.get(writer)
        return known is not None and known.holds(sequence)

    def missing(self, writer: int, *, first: int) -> list[int]:
        """Sequences of the window from ``first``, at least 1, to the last one that are not held."""
        last = self.last_of(writer)
        begin = max(first, last - WINDOW + 1)
        return [sequence for sequence in range(begin, last + 1) if not self.holds(writer, sequence)]

    def store(self, writer: int, sequence: int, position: int, *, tail: int) -> None:
        """Note that an episode was stored; forget writers of whom the table holds none.

        Args:
            writer: Who wrote it.
            sequence: Above the writer's last one.
            position: Position of its last row.
            tail: Oldest position that the table holds.
        """
        self._writers.setdefault(writer, _Sequences()).store(sequence, position)
        self._writers.move_to_end(writer)
        while len(self._writers) > REMEMBERED:
            oldest, sequences = next(iter(self._writers.items()))
            if sequences.position >= tail:
                break
            del self._writers[oldest]
