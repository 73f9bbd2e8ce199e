"""Saturated iterations, whose gradients were lost to the range of float32 or clamped (ADR 109)."""

import logging
from collections.abc import Callable, Iterable, Mapping

from fullrank.algorithms.optimiser import CLIP_OVERFLOW
from fullrank.algorithms.updates import CLAMPED
from fullrank.runs.record import METRICS

log = logging.getLogger(__name__)

MEANING = {
    CLIP_OVERFLOW: "gradients vanished, because their norms overflow float32",
    CLAMPED: "gradients or statistics beyond the range of exact sums were clamped or left out",
}


class SaturationLog:
    """Says that iterations were saturated: the first as a caveat of the run, the rest in the log.

    Args:
        held: Caveats that the run has for good.
        keep: Keeps another one of them.
    """

    def __init__(self, held: Iterable[str], *, keep: Callable[[str], None]) -> None:
        self._held, self._keep = tuple(held), keep
        self._count = dict.fromkeys(MEANING, 0)

    def note(self, iteration: int, statistics: Mapping[str, float | None]) -> None:
        """Take the statistics of an update."""
        for kind, meaning in MEANING.items():
            places = [name.partition("/")[2] for name in statistics if name.startswith(f"{kind}/")]
            if not places:
                continue
            self._count[kind] += 1
            count, where = self._count[kind], ", ".join(places)
            if count == 1 and not any(caveat.startswith(meaning) for caveat in self._held):
                self._keep(
                    f"{meaning}, first in iteration {iteration} ({where}), and later ones as "
                    f"{METRICS} says; scale the rewards to magnitudes around 1"
                )
            if count == 10 ** (len(str(count)) - 1):
                log.warning(
                    "saturated iteration=%d count=%d %s %s", iteration, count, where, meaning
                )
