"""The numerics of a run: whose bits its updates have, fixed when it begins (ADR 53).

A learner's report of itself is a claim, so that a count of learners is no proof: the same
user may attach any number of them. The numerics of a run are therefore the controller's own, or,
where the user says so, those of the first epoch's learners. They are written down in the run
directory; learners with others are spares. Only the user changes them, by naming the new ones.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from pydantic import TypeAdapter

from fullrank.common.durable import replace_text
from fullrank.common.errors import CheckpointUnusable, Malformed
from fullrank.common.foreign import TEXT, parse_json, read_regular
from fullrank.common.schema import validated
from fullrank.config.tree import RunConfig
from fullrank.runs.events import EventLog, NumericsBegan
from fullrank.training.worker import probe_of
from fullrank.wiring.training import Training, initial_algorithm
from fullrank_controller.membership.member import Numerics
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

log = logging.getLogger(__name__)

FILE = "numerics.json"
"""File of the run directory with the run's numerics since its first iteration."""


_HISTORY = TypeAdapter(list[Numerics])


def own_numerics(config: RunConfig, training: Training) -> Numerics:
    """The numerics of this process, by the probe of which every learner reports the digests."""
    algorithm = initial_algorithm(config, training)
    probe = probe_of(algorithm, training.collector.agents, seed=config.seed)
    return Numerics.of(algorithm.gradients.fingerprint(), probe.digests)


class RunNumerics:
    """Fixes the numerics of a run and writes them down.

    Args:
        run_dir: The run's directory.
        term: Term of this controller.
        since: The iteration that is committed next.
        roster: Admits learners of these numerics to rows.
        event_log: Receives each change.
        progress: Shows that a run has changed its numerics.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        term: int,
        since: int,
        roster: Roster,
        event_log: EventLog,
        progress: RunProgress,
    ) -> None:
        self._path = run_dir / FILE
        self._term, self._since = term, since
        self._roster, self._event_log, self._progress = roster, event_log, progress
        self._history: list[Numerics] = []

    def settle(self, setting: str, own: Callable[[], Numerics]) -> None:
        """Take the numerics that are written down, or those of the setting.

        Args:
            setting: ``audit.fingerprint``.
            own: Computes the numerics of this process.

        Raises:
            CheckpointUnusable: The file is damaged.
        """
        stored = self._read()
        self._history = [numerics for numerics in stored if numerics.since < self._since]
        if len(self._history) < len(stored):  # iterations were taken back
            self._history.append(replace(stored[-1], since=self._since))
        current = self._roster.numerics = self._history[-1] if self._history else None
        if setting not in ("controller", "learners"):
            if current is None or current.identity != setting:
                mine, named = own(), Numerics(identity=setting, fingerprint="")
                self.fix(mine if mine.identity == setting else named)
        elif current is None and setting == "controller":
            self.fix(own())
        self._report()

    def fix(self, numerics: Numerics) -> None:
        """Make these the numerics of the run from the next iteration on."""
        current = self._roster.numerics = replace(numerics, since=self._since)
        earlier = [entry for entry in self._history if entry.since < self._since]
        self._history = [*earlier, current]
        replace_text(self._path, json.dumps(list(map(asdict, self._history)), indent=2) + "\n")
        self._event_log.append(
            NumericsBegan(term=self._term, iteration=self._since, identity=numerics.identity)
        )
        log.info(
            "numerics iteration=%d identity=%s fingerprint=%s",
            self._since,
            numerics.identity,
            numerics.fingerprint,
        )
        self._report()

    def _report(self) -> None:
        """Show changes: the bits of such a run are those of no single machine."""
        changes = [
            f"{entry.identity} from iteration {entry.since} on" for entry in self._history[1:]
        ]
        if changes:
            self._progress.record_caveat(
                "numerics",
                "the numeric fingerprint of the run was changed: it began with "
                f"{self._history[0].identity} and has {', '.join(changes)}; the bits of a run "
                "without the change are others",
            )

    def _read(self) -> list[Numerics]:
        if not self._path.exists():
            return []
        try:
            content = read_regular(self._path, TEXT.size)
            return validated(_HISTORY, parse_json(content, origin=FILE), origin=FILE)
        except Malformed as error:
            raise CheckpointUnusable(
                f"{self._path}: {error}; restore it from a copy, or remove it and name the run's "
                "numeric fingerprint by audit.fingerprint"
            ) from None
