"""The verdicts of a run as its controller keeps them: in memory, and in the run directory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from fullrank.common.types import LearnerId
from fullrank.runs.verdicts import Kind, Party, RunVerdict, kept, read_verdicts, write_verdicts


class HeldDirectory(Protocol):
    """A run directory that this controller holds."""

    @property
    def path(self) -> Path:
        """The directory."""

    @property
    def term(self) -> int:
        """The controller's term."""

    def confirm(self) -> None:
        """Raise ``StaleTerm`` if a later controller has taken it."""


class Verdicts:
    """Verdicts of one run, to which every term adds.

    Args:
        directory: The run's directory; None keeps them in memory.
    """

    def __init__(self, directory: HeldDirectory | None = None) -> None:
        self._directory = directory
        self._all: list[RunVerdict] = [] if directory is None else read_verdicts(directory.path)
        self._unpublished: list[LearnerId] = []

    @classmethod
    def of(cls, directory: HeldDirectory, *, resumes_at: int) -> Self:
        """The verdicts of a run that commits ``resumes_at`` next.

        Raises:
            CheckpointUnusable: Their file is damaged.
        """
        verdicts = cls(directory)
        for verdict in verdicts._all:
            if verdict.iteration >= resumes_at:  # its record is committed again
                verdicts._publish(verdict)
        return verdicts

    @property
    def lines(self) -> Sequence[str]:
        """A line for each verdict, the oldest first."""
        return tuple(map(str, self._all))

    def add(
        self, kind: Kind, reason: str, *, iteration: int, party: Party | None = None
    ) -> RunVerdict:
        """Add a verdict; it is on disk when this returns.

        Raises:
            StaleTerm: A later controller has taken the run.
        """
        term = self._directory.term if self._directory is not None else 0
        verdict = RunVerdict(kind=kind, term=term, iteration=iteration, reason=reason, party=party)
        self._all = kept([*self._all, verdict])
        self._publish(verdict)
        if self._directory is not None:
            self._directory.confirm()
            write_verdicts(self._directory.path, self._all)
        return verdict

    def against(self, party: Party) -> str:
        """Why a learner holds no row; empty if it may."""
        barring = (each for each in reversed(self._all) if each.bars and each.concerns(party))
        return next((verdict.reason for verdict in barring), "")

    def take_quarantined(self) -> tuple[LearnerId, ...]:
        """Learners that were barred since the last call, for the next record."""
        taken, self._unpublished = self._unpublished, []
        return tuple(sorted(set(taken)))

    def _publish(self, verdict: RunVerdict) -> None:
        if verdict.bars and verdict.party is not None:
            self._unpublished.append(verdict.party.learner)
