"""The identity of a run under one term, and the guard that keeps a stale term from committing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from fullrank.algorithms.problem import Problem
from fullrank.common.errors import FullrankError, StaleTerm
from fullrank.common.types import RunTerm
from fullrank.rounds.reports import report_bytes
from fullrank.run.round import OpenRound
from fullrank.v1.common_pb2 import Ids

log = logging.getLogger(__name__)
audit = logging.getLogger("fullrank.audit")


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Constants of a run under one term."""

    run_term: RunTerm
    problem: Problem
    """Units, sizes and target of an iteration."""

    @property
    def name(self) -> str:
        """Id of the run."""
        return self.run_term.run

    @property
    def term(self) -> int:
        """Number of the term."""
        return self.run_term.term

    @property
    def units(self) -> int:
        """Number of units, M."""
        return len(self.problem.units)

    @property
    def report_bytes(self) -> int:
        """Bytes of a unit's report."""
        return report_bytes(self.problem)

    def ids(self, opened: OpenRound[Any]) -> Ids:
        """Ids of a contribution to the current attempt of a round."""
        return Ids(
            run=self.name,
            term=self.term,
            epoch=opened.assignment.epoch,
            iteration=opened.round.iteration,
            attempt=opened.attempt,
        )

    def matches(self, ids: Ids, *, epoch: int) -> bool:
        """True if the ids are of this run, this term and the given epoch."""
        return (ids.run, ids.term, ids.epoch) == (self.name, self.term, epoch)

    def is_current(self, ids: Ids, opened: OpenRound[Any]) -> bool:
        """True if a contribution belongs to an open round, in any attempt so far."""
        return (
            self.matches(ids, epoch=opened.assignment.epoch)
            and ids.iteration == opened.round.iteration
            and ids.attempt <= opened.attempt
        )


class TermGuard:
    """Detects a later controller of the run where a peer claims to have served one.

    The claim is a hint: what carries terms is asked, and the peer alone suffers from a false one.

    Args:
        run_term: The term of this controller.
        every_s: Least time between two questions, seconds.

    Attributes:
        witnesses: What carries terms; each raises ``StaleTerm`` if it knows of a later one, or
            another error if it cannot be asked.
    """

    def __init__(self, run_term: RunTerm, *, every_s: float) -> None:
        self.witnesses: list[Callable[[], Awaitable[None]]] = []
        self._run_term, self._every_s = run_term, every_s
        self._asking, self._asked_at = asyncio.Lock(), -inf
        self._later: StaleTerm | None = None
        self._superseded = asyncio.Event()

    async def check(self, served: RunTerm, *, peer: str) -> None:
        """Check the term that a peer served last.

        A question is audited with its answer; claims within ``every_s`` of it share the answer.

        Args:
            served: The term that it claims.
            peer: Its address, for the audit log.

        Raises:
            StaleTerm: It is later than this controller's; the stream must end.
        """
        if served.run != self._run_term.run or served.term <= self._run_term.term:
            return
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if self._later is None and now >= self._asked_at + self._every_s:
                self._asked_at = now
                await self._ask()
                outcome = "false" if self._later is None else "true"
                audit.info("claim peer=%s served=%d outcome=%s", peer, served.term, outcome)
        raise self._later or StaleTerm(
            f"you have served term {served.term} of run {served.run}, and nothing that carries its "
            f"terms knows of one after this controller's, {self._run_term.term}; dial the later "
            "controller, or start anew if the run was restored from an older copy"
        )

    async def superseded(self) -> None:
        """Wait, possibly for ever, until a later controller is found; then raise ``StaleTerm``.

        Raises:
            StaleTerm: A later controller of this run exists.
        """
        await self._superseded.wait()
        assert self._later is not None  # found
        raise StaleTerm(str(self._later))

    async def _ask(self) -> None:
        """Ask the witnesses in turn, until one knows of a later term."""
        for ask in self.witnesses:
            try:
                await ask()
            except StaleTerm as error:
                self._later = error
                self._superseded.set()
                return
            except (FullrankError, OSError, ValueError) as error:  # it proves nothing
                log.warning("terms_unknown reason=%s", error)
