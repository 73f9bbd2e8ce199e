"""Saturated iterations: gradients that were lost to the range of float32, or clamped (ADR 109)."""

import logging
from collections.abc import Mapping

from fullrank.algorithms.learner_statistics import CLAMPED
from fullrank.algorithms.optimiser import CLIP_OVERFLOW
from fullrank_controller.progress import RunProgress

log = logging.getLogger(__name__)

MEANING = {
    CLIP_OVERFLOW: "gradients vanished, because their norms overflow float32",
    CLAMPED: "gradients or statistics were clamped to the range of exact sums",
}


class SaturationLog:
    """Says which iterations were saturated: in the status, and in the log at powers of ten.

    Args:
        progress: Shows the caveat.
    """

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress
        self._first: dict[str, str] = {}
        self._count = dict.fromkeys(MEANING, 0)

    def note(self, iteration: int, statistics: Mapping[str, float | None]) -> None:
        """Take the statistics of an update."""
        for kind, meaning in MEANING.items():
            places = [name.partition("/")[2] for name in statistics if name.startswith(f"{kind}/")]
            if not places:
                continue
            self._count[kind] += 1
            count = self._count[kind]
            first = self._first.setdefault(kind, f"first {iteration} ({', '.join(places)})")
            text = (
                f"{meaning}, in {count} iterations, {first}; scale the rewards to magnitudes "
                "around 1"
            )
            self._progress.record_caveat(kind, text)
            if count == 10 ** (len(str(count)) - 1):
                log.warning("saturated iteration=%d %s", iteration, text)
