"""Peeling: decode by repeatedly using up rows with one unknown unit."""

from collections.abc import Iterable

from fullrank.common.types import UnitIndex


class Peeling:
    """Units that follow by substitution alone; O(load) per row, no arithmetic.

    Sufficient for decodability, not necessary: rows may have full rank while every one of them
    still has two unknowns (then elimination is needed). For codes with unit rows (uncoded,
    replication, LDPC, LDGM) it almost always agrees with the rank at hardly any cost.

    >>> peeling = Peeling(3)
    >>> peeling.add([0, 1]), peeling.add([1, 2]), peeling.resolved
    (None, None, set())
    >>> peeling.add([2])
    >>> sorted(peeling.resolved)
    [0, 1, 2]
    """

    def __init__(self, units: int) -> None:
        self.resolved: set[UnitIndex] = set()
        self._unknown: list[set[UnitIndex]] = []
        self._waiting: list[list[int]] = [[] for _ in range(units)]

    def add(self, support: Iterable[UnitIndex]) -> None:
        """Take a row whose non-zero coefficients are at ``support``."""
        unknown = set(support) - self.resolved
        if len(unknown) == 1:
            self._resolve(unknown.pop())
        elif unknown:
            for unit in unknown:
                self._waiting[unit].append(len(self._unknown))
            self._unknown.append(unknown)

    def _resolve(self, unit: UnitIndex) -> None:
        ready = [unit]
        while ready:
            unit = ready.pop()
            if unit in self.resolved:
                continue
            self.resolved.add(unit)
            for row in self._waiting[unit]:
                unknown = self._unknown[row]
                unknown.discard(unit)
                if len(unknown) == 1:
                    ready.extend(unknown)
            self._waiting[unit].clear()
