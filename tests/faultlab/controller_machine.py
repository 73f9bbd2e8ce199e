"""The machine of a run's controller, which can be lost together with the run that it holds."""

import shutil
from pathlib import Path

from tests.faultlab.service_runs import ANYWHERE

from fullrank.host.run_directory import resolve
from fullrank.runs.events import DIRECTORY
from fullrank.runs.identity import CONFIGURATION
from fullrank.runs.snapshot import REPLAY

STORE, MACHINES = "store", "machines"
SHARED = {CONFIGURATION, DIRECTORY, REPLAY, STORE, MACHINES, "logs", "services"}
"""Entries of a run directory that outlive the controller's machine: they are not its own."""


class ControllerMachine:
    """The directory in which the run's controller keeps it: at first that of all services.

    Args:
        run_dir: Directory of all services; it gets the history of all controllers.

    Attributes:
        directory: Directory of the present controller.
    """

    def __init__(self, run_dir: Path) -> None:
        self.directory = self._run_dir = run_dir
        self._made = 0

    def address(self) -> str:
        """Address of the present controller.

        Raises:
            ServiceLost: It has not announced itself yet.
        """
        return resolve(ANYWHERE, self.directory, "controller")

    def another(self) -> Path:
        """Make the directory of a controller on another machine."""
        self._made += 1
        directory = self._run_dir / MACHINES / str(self._made)
        directory.mkdir(parents=True)
        (self._run_dir / DIRECTORY).mkdir(exist_ok=True)
        (directory / DIRECTORY).symlink_to(self._run_dir / DIRECTORY)
        return directory

    def lose(self, successor: Path) -> None:
        """Lose the present machine, whose processes have ended; the run goes on elsewhere."""
        for path in _own(self.directory):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.directory = successor

    def gather(self) -> None:
        """Bring the finished run to the directory of all services."""
        if self.directory != self._run_dir:
            for path in _own(self.directory):
                path.rename(self._run_dir / path.name)
        self.directory = self._run_dir


def _own(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name not in SHARED]
