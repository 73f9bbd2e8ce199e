"""Verdicts of a run: the learners and collectors that were found wrong.

They are part of the run's state, in ``verdicts.json`` of its directory: a controller that resumes
the run bars the same learners, and its status and ``fullrank verify`` say what was found.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

from fullrank.common.durable import replace_bytes
from fullrank.common.errors import CheckpointUnusable, Malformed
from fullrank.common.foreign import read_regular
from fullrank.common.schema import validated
from fullrank.common.types import LearnerId
from fullrank.runs.record import condemnations

FILE = "verdicts.json"
"""File of the run directory."""
MOST_BYTES = 2**22
"""Largest size of the file."""
MOST = 1000
"""Verdicts that are kept, the newest ones; every conviction of a bound certificate is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A learner or a collector, by what its stream proved and what it claimed."""

    learner: LearnerId
    """Its index when it sent the contribution."""
    role: Literal["learner", "collector"] = "learner"
    host: str = ""
    """Name of its host, as it claimed."""
    address: str = ""
    """Network address of its host; empty where it is not known."""
    certificate: str = ""
    """Identity in its certificate; empty in plain text."""
    bound: bool = False
    """True if the certificate is for one learner alone."""
    process: str = ""
    """Identity of its process, as it claimed, in hexadecimal digits."""

    def __str__(self) -> str:
        facts = (self.address, self.certificate, self.process and f"process {self.process[:8]}")
        said = ", ".join(filter(None, facts))
        host = f" on {self.host}" if self.host else ""
        return f"{self.role} {self.learner}{host}" + (f" ({said})" if said else "")


Kind: TypeAlias = Literal["convicted", "left out", "suspected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """What the controller found about a learner, or a collector."""

    kind: Kind
    """*Convicted*: its contribution was wrong. *Left out*: it is a party to a dispute that no proof
    could settle. *Suspected*: the run stopped at such a dispute."""
    term: int
    iteration: int
    """Iteration of the contribution."""
    reason: str
    party: Party

    @property
    def bars(self) -> bool:
        """True if the learner holds no row, or the collector plays no block, from then on."""
        return self.kind in ("convicted", "left out")

    def concerns(self, other: Party) -> bool:
        """True if another stream is the same learner's.

        A convicted learner is recognised by a certificate that is bound to it, which it cannot
        choose; any other by the identity that its process claims.
        """
        party = self.party
        if party.bound and self.kind == "convicted":
            return other.bound and other.certificate == party.certificate
        return bool(other.process) and other.process == party.process

    def __str__(self) -> str:
        said = "was found wrong" if self.kind == "convicted" else f"is {self.kind}"
        return f"{self.party} {said}, iteration {self.iteration} of term {self.term}: {self.reason}"


_VERDICTS = TypeAdapter(list[RunVerdict])


def read_verdicts(run_dir: Path) -> list[RunVerdict]:
    """The verdicts of a run, the oldest first.

    Raises:
        CheckpointUnusable: The file is damaged.
    """
    path = run_dir / FILE
    if not path.exists():
        return []
    try:
        return validated(_VERDICTS, read_regular(path, MOST_BYTES), origin="it holds no verdicts")
    except Malformed as error:
        raise CheckpointUnusable(
            f"{path} is damaged ({error}); restore it from a copy, or remove it, and learners "
            "that were found wrong are admitted again"
        ) from None


def write_verdicts(run_dir: Path, verdicts: Sequence[RunVerdict]) -> None:
    """Replace the verdicts of a run."""
    content = _VERDICTS.dump_json(list(verdicts), indent=2, exclude_defaults=True)
    replace_bytes(run_dir / FILE, content + b"\n")


def add_verdicts(run_dir: Path, stored: str) -> None:
    """Add the verdicts in the text of another ``verdicts.json`` of the run, which is kept whole.

    Raises:
        Malformed: The text holds no verdicts.
    """
    found, own = validated(_VERDICTS, stored, origin=f"{FILE} of the store"), list[RunVerdict]()
    with suppress(CheckpointUnusable):
        own = read_verdicts(run_dir)
    write_verdicts(run_dir, kept(sorted(dict.fromkeys([*found, *own]), key=lambda each: each.term)))


def kept(verdicts: Iterable[RunVerdict]) -> list[RunVerdict]:
    """The last conviction of each bound certificate, then the newest of all other verdicts."""
    bound: dict[str, RunVerdict] = {}
    others: list[RunVerdict] = []
    for verdict in verdicts:
        if verdict.kind == "convicted" and verdict.party.bound:
            bound[verdict.party.certificate] = verdict
        else:
            others.append(verdict)
    return [*bound.values(), *others[-MOST:]]


class Verdicts:
    """Verdicts of one run, to which every term adds.

    Args:
        run_dir: The run's directory; None keeps them in memory.
        term: Term of this controller.
        confirm: Called before each write; raises if the term of this controller has ended.
        resumes_at: The iteration whose record is committed next.

    Raises:
        CheckpointUnusable: Their file is damaged.
        Malformed: The metrics of the run cannot be read.
    """

    def __init__(
        self,
        run_dir: Path | None = None,
        *,
        term: int = 0,
        confirm: Callable[[], None] = lambda: None,
        resumes_at: float = inf,
    ) -> None:
        self._run_dir, self._term, self._confirm = run_dir, term, confirm
        self._all = [] if run_dir is None else read_verdicts(run_dir)
        self._condemned = [] if run_dir is None else condemnations(run_dir)
        again = [verdict for verdict in self._all if verdict.iteration >= resumes_at]
        self._unpublished = _barred(again)

    @property
    def lines(self) -> Sequence[str]:
        """A line for each verdict, the oldest first, and then for each condemnation."""
        return (*map(str, self._all), *map(str, self._condemned))

    def add(self, kind: Kind, reason: str, *, iteration: int, party: Party) -> RunVerdict:
        """Add a verdict; it is on disk when this returns.

        Raises:
            StaleTerm: A later controller has taken the run.
        """
        verdict = RunVerdict(
            kind=kind, term=self._term, iteration=iteration, reason=reason, party=party
        )
        self._all = kept([*self._all, verdict])
        self._unpublished += _barred([verdict])
        if self._run_dir is not None:
            self._confirm()
            write_verdicts(self._run_dir, self._all)
        return verdict

    def against(self, party: Party) -> str:
        """Why a learner holds no row, or a collector plays no block; empty if it may."""
        barring = (each for each in reversed(self._all) if each.bars and each.concerns(party))
        return next((verdict.reason for verdict in barring), "")

    def take_quarantined(self) -> tuple[LearnerId, ...]:
        """Learners that were barred since the last call, for the next record."""
        taken, self._unpublished = self._unpublished, []
        return tuple(sorted(set(taken)))


def _barred(verdicts: Iterable[RunVerdict]) -> list[LearnerId]:
    """The learners among the parties that verdicts bar."""
    barring = (verdict.party for verdict in verdicts if verdict.bars)
    return [party.learner for party in barring if party.role == "learner"]
