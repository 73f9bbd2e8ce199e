"""Claims of the terms of a mirrored run, so that one controller of all machines continues it.

``terms/000002`` is created, never overwritten; who creates it is the controller of that term.
``taken/000002`` says that a standby of that term has read the run: it may publish again what it
found, also what its predecessor had stored and not published. No older directory goes on then.
"""

import json

from fullrank.common.errors import (
    CheckpointUnusable,
    Malformed,
    NotFound,
    RunDirectoryInUse,
    StaleTerm,
)
from fullrank.common.foreign import parse_json
from fullrank.common.types import JSON
from fullrank.runs.identity import CHECKPOINTS, JOURNAL, STAMP
from fullrank.runs.journal import order_of
from fullrank.runs.objects import Objects

_TERMS, _TAKEN = "terms/", "taken/"


class Claims:
    """The claims in a mirror.

    Args:
        objects: The mirror's objects.
        place: Where they are, for messages.

    Attributes:
        term: The term that this process has claimed; 0 before.
    """

    def __init__(self, objects: Objects, place: str) -> None:
        self._objects, self._place = objects, place
        self.term = 0

    def newest(self) -> tuple[int, JSON]:
        """The highest claimed term and its facts, ``run`` among them; 0 if there is none.

        Raises:
            CheckpointUnusable: It is damaged.
        """
        names = self._objects.names(_TERMS)
        if not names:
            return 0, {"run": ""}
        try:
            facts = parse_json(self._objects.get(names[-1]), origin=names[-1])
            return int(names[-1].removeprefix(_TERMS)), {**facts, "run": str(facts["run"])}
        except (Malformed, ValueError, KeyError, TypeError, NotFound) as error:
            raise CheckpointUnusable(f"{self._place}: {names[-1]} is damaged: {error}") from None

    def claim(self, run: str, *, last: int) -> int:
        """Claim the next term of a run; from then on no earlier controller publishes anything.

        Args:
            run: Id of the run.
            last: The last term that the claiming directory knows; 0 if it is new.

        Returns:
            The term, above every one that was claimed.

        Raises:
            StaleTerm: The run went on elsewhere since, or another controller claims it now.
            RunDirectoryInUse: The mirror is another run's.
        """
        claimed, facts = self.newest()
        owner = facts["run"]
        if owner != run and self.filled():
            raise RunDirectoryInUse(
                f"{self._place} mirrors another run, {owner}; choose another checkpoint.mirror, or "
                "continue that run with `fullrank serve controller --standby`"
            )
        self._check(last)
        self.term = max(claimed, last) + 1
        content = json.dumps({**STAMP, "run": run}).encode()
        if not self._objects.create(f"{_TERMS}{self.term:06d}", content):
            raise self._superseded(self.term)
        self._check(last)  # again: what was stored before the claim was published, perhaps
        names = self._objects.names(_TERMS)
        self._objects.remove(name for name in names if name < f"{_TERMS}{claimed:06d}")
        return self.term

    def confirm(self) -> None:
        """Return if no later controller has claimed the run.

        Raises:
            StaleTerm: Another one has; this controller may publish no more.
        """
        names = self._objects.names(_TERMS)
        if names and names[-1] > f"{_TERMS}{self.term:06d}":
            raise self._superseded(int(names[-1].removeprefix(_TERMS)))

    def take(self) -> None:
        """Say that the claimed run was read, and goes on in another directory."""
        before = self._objects.names(_TAKEN)
        self._objects.put(f"{_TAKEN}{self.term:06d}", b"")
        self._objects.remove(name for name in before if name < f"{_TAKEN}{self.term:06d}")

    def stored(self) -> int:
        """The highest term with a stored iteration; 0 if none is stored."""
        segments = {name.split("/")[1] for name in self._objects.names(f"{JOURNAL}/")}
        return max((order_of(segment)[0] for segment in segments), default=0)

    def filled(self) -> bool:
        """True if the mirror holds committed iterations."""
        return any(self._objects.names(f"{folder}/") for folder in (JOURNAL, CHECKPOINTS))

    def _check(self, last: int) -> None:
        taken = [int(name.removeprefix(_TAKEN)) for name in self._objects.names(_TAKEN)]
        if (newer := max([self.stored(), *taken])) > last:
            raise StaleTerm(
                f"{self._place} has a state of term {newer}, and this run directory ends with term "
                f"{last}: the run went on elsewhere; to continue it here, use `fullrank serve "
                "controller --standby` with a new directory"
            )

    def _superseded(self, claimed: int) -> StaleTerm:
        return StaleTerm(
            f"{self._place}: another controller has claimed term {claimed} of the run; nothing "
            "more is published here"
        )
