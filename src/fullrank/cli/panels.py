"""Panels of ``fullrank plot``: the numbers of a run that each pair of axes shows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fullrank.runs.scalars import RETURN, WIN_RATE

T = TypeVar("T")

_NAMES = {RETURN: "all agents", WIN_RATE: "won"}
"""Names of curves by tag; the name of a side's return is the side, other tags are names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Content of one pair of axes."""

    label: str
    tags: Callable[[Iterable[str]], Sequence[str]]
    """Tags of the curves among all tags of a run."""
    scale: str = "linear"
    bounds: tuple[float, float] | None = None

    def of(self, numbers: Mapping[str, T]) -> dict[str, T]:
        """The numbers of the panel by the names of its curves, out of numbers by tag."""
        return {
            _NAMES.get(tag, tag.removeprefix("return/")): numbers[tag]
            for tag in self.tags(numbers)
            if tag in numbers
        }


def _returns(tags: Iterable[str]) -> Sequence[str]:
    """The return of each side, or of all agents where there is one side."""
    sides = [tag for tag in tags if tag.startswith("return/") and tag != RETURN]
    return sides if len(sides) > 1 else (RETURN,)


def _always(*tags: str) -> Callable[[Iterable[str]], Sequence[str]]:
    return lambda _: tags


RETURNS = Panel(label="mean episode return", tags=_returns)
PANELS = (
    RETURNS,
    Panel(label="win rate", tags=_always(WIN_RATE), bounds=(-0.02, 1.02)),
    Panel(label="error", tags=_always("loss", "td_error_abs"), scale="log"),
    Panel(label="value of an action", tags=_always("q_taken_mean", "target_mean")),
)
"""Panels above that of the round times, each drawn if a run has its numbers."""
