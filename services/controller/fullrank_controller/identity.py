"""The identity of a run under one term, and the guard that keeps a stale term from committing."""

import asyncio
from dataclasses import dataclass

from fullrank.algorithms.problem import Problem
from fullrank.common.errors import StaleTerm
from fullrank.common.types import RunTerm
from fullrank.rounds.reports import report_bytes
from fullrank.v1.common_pb2 import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """Constants of a run under one term."""

    name: str
    term: int
    instance: int = 0
    """Tells this controller from another one that began the same term on a copied directory."""
    iterations: int
    problem: Problem
    """Units, sizes and target of an iteration."""

    @property
    def units(self) -> int:
        """Number of units, M."""
        return len(self.problem.units)

    @property
    def report_bytes(self) -> int:
        """Bytes of a unit's report."""
        return report_bytes(self.problem)

    @property
    def run_term(self) -> RunTerm:
        """The term of this run."""
        return RunTerm(self.name, self.term, self.instance)

    def ids(self, *, epoch: int, iteration: int, attempt: int) -> Ids:
        """Ids of a contribution to this run under this term."""
        return Ids(run=self.name, term=self.term, epoch=epoch, iteration=iteration, attempt=attempt)

    def matches(self, ids: Ids, *, epoch: int) -> bool:
        """True if the ids are of this run, this term and the given epoch."""
        return (ids.run, ids.term, ids.epoch) == (self.name, self.term, epoch)


class TermGuard:
    """Detects a later controller of the run by the term that learners served last.

    Args:
        run_term: The term of this controller.
    """

    def __init__(self, run_term: RunTerm) -> None:
        self._run_term = run_term
        self._later_term = 0
        self._superseded = asyncio.Event()

    def check_term(self, served: RunTerm) -> None:
        """Check the term that a learner served last.

        Raises:
            StaleTerm: It belongs to a later controller of this run.
        """
        if served.run == self._run_term.run and served.term > self._run_term.term:
            self._later_term = served.term
            self._superseded.set()
            raise self._error()

    async def superseded(self) -> None:
        """Wait, possibly for ever, for a learner to report a later term; then raise ``StaleTerm``.

        Raises:
            StaleTerm: A later controller of this run exists.
        """
        await self._superseded.wait()
        raise self._error()

    def _error(self) -> StaleTerm:
        return StaleTerm(
            f"a learner has served term {self._later_term} of run {self._run_term.run}, this "
            f"controller is of term {self._run_term.term}: a later controller runs; nothing more "
            "is committed here"
        )
