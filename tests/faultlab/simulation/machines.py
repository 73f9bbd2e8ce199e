"""Run directories of a simulated run: one for each machine on which a controller runs it."""

import json
import shutil
from pathlib import Path

import numpy as np

from fullrank.audit.ledger import KEY_BYTES
from fullrank.common.durable import replace_text
from fullrank.common.seeding import stream
from fullrank.config.tree import RunConfig
from fullrank.runs.events import DIRECTORY
from fullrank.runs.identity import IDENTITY, STAMP
from fullrank_controller.persistence.run_directory import SECRET


class Machines:
    """The machines of one run; without a store there is only one.

    Args:
        scratch: An empty directory, which gets the history of all machines.
        config: Configuration of the run.
        draws: Draws the machine that returns.

    Attributes:
        present: Run directory in which a controller began last.
    """

    def __init__(self, scratch: Path, config: RunConfig, draws: np.random.Generator) -> None:
        self._scratch, self._config, self._draws = scratch, config, draws
        self._made = 0
        self._lost: Path | None = None
        self._next = self._stay
        (scratch / DIRECTORY).mkdir()
        self.present = self._new()

    def lose(self) -> None:
        """Lose the present machine, once its processes are killed."""
        self._lost = self.present

    def remove_lost(self) -> None:
        """Remove the directory of a machine that is lost."""
        if self._lost is not None:
            shutil.rmtree(self._lost)
        self._lost = None

    def fail_over(self) -> None:
        """Let the next controller go on from the store, on a new machine."""
        self._next = self._new

    def go_back(self) -> None:
        """Let the next controller begin on any machine that is not lost, however old its state."""
        self._next = self._any

    @property
    def moving(self) -> bool:
        """True if the next controller may begin in another directory."""
        return self._next != self._stay

    def next(self) -> Path:
        """The directory in which the next controller is to begin."""
        chosen, self._next = self._next, self._stay
        return chosen() if self.present.exists() else self._new()

    def _stay(self) -> Path:
        return self.present

    def _any(self) -> Path:
        found = sorted(self._scratch.glob(f"machine-*/{IDENTITY}"))
        return found[int(self._draws.integers(len(found)))].parent

    def _new(self) -> Path:
        """Make a directory with what no store holds: the history, and the key of audits."""
        directory = self._scratch / f"machine-{self._made:03d}"
        self._made += 1
        directory.mkdir()
        (directory / DIRECTORY).symlink_to(self._scratch / DIRECTORY)
        draws = stream(self._config.seed, "audit_key")  # a schedule is its seed, audits included
        replace_text(directory / IDENTITY, json.dumps({**STAMP, "run": "simulation"}))
        replace_text(directory / SECRET, f"{draws.bytes(KEY_BYTES).hex()}\n")
        return directory
