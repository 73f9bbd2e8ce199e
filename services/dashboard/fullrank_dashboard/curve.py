"""Curves of a run, for a page: numbers by iteration, averaged where there are too many."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from fullrank.common.errors import Malformed

LIMIT = 20_000
"""Most points; in longer runs neighbouring iterations are averaged into one point."""
COLUMNS = 128
"""Most columns; one takes up to 320 kB."""
DIGITS = 6
"""Significant digits of the numbers sent to a page."""


@dataclass(slots=True, eq=False)
class Column:
    """One number, summed over the iterations of each point."""

    sums: "array[float]" = field(default_factory=lambda: array("d"))
    counts: "array[int]" = field(default_factory=lambda: array("Q"))

    def accumulate(self, index: int, value: float) -> None:
        """Add a value to a point; earlier points may have no value."""
        missing = index + 1 - len(self.sums)
        self.sums.extend([0.0] * missing)
        self.counts.extend([0] * missing)
        self.sums[index] += value
        self.counts[index] += 1

    def halve(self) -> None:
        """Merge points in pairs."""
        self.sums = array("d", map(sum, zip_longest(self.sums[::2], self.sums[1::2], fillvalue=0)))
        self.counts = array(
            "Q", map(sum, zip_longest(self.counts[::2], self.counts[1::2], fillvalue=0))
        )

    def means(self, start: int, length: int) -> list[float | None]:
        """Means of the points from ``start`` to ``length``; None for points without a value."""
        means = [
            float(f"{total / count:.{DIGITS}g}") if count else None
            for total, count in zip(self.sums[start:], self.counts[start:], strict=True)
        ]
        return means + [None] * (length - start - len(means))


class Curve:
    """Columns of numbers over iterations that come in order.

    Args:
        limit: Most points kept.

    Attributes:
        generation: Rises whenever existing points change.
        width: Iterations of each point.
    """

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._columns: dict[str, Column] = {}
        self._length = 0
        self.generation = 0
        self.width = 1

    def __len__(self) -> int:
        return self._length

    def extend(self, iteration: int, values: Mapping[str, float | None]) -> None:
        """Add the numbers of an iteration; None means unknown.

        Raises:
            Malformed: There are more columns than any run has.
        """
        while iteration // self.width >= self._limit:
            self._halve()
        index = iteration // self.width
        self._length = max(self._length, index + 1)
        for name, value in values.items():
            if value is not None:
                self._column(name).accumulate(index, value)

    def _column(self, name: str) -> Column:
        if name not in self._columns and len(self._columns) >= COLUMNS:
            raise Malformed(f"the iterations have more than {COLUMNS} different numbers")
        return self._columns.setdefault(name, Column())

    def forget(self, iteration: int) -> None:
        """Drop the points from the one that holds ``iteration`` on."""
        self._length = min(self._length, iteration // self.width)
        for column in self._columns.values():
            del column.sums[self._length :], column.counts[self._length :]
        self.generation += 1

    def _halve(self) -> None:
        for column in self._columns.values():
            column.halve()
        self._length = -(-self._length // 2)
        self.width *= 2
        self.generation += 1

    def columns(self, start: int) -> dict[str, list[float | None]]:
        """Means of the points from ``start`` on, by name."""
        return {name: column.means(start, self._length) for name, column in self._columns.items()}

    def total(self, name: str) -> float:
        """Sum of a number over all iterations."""
        return sum(self._columns[name].sums) if name in self._columns else 0.0
