"""Where a run's policies come from: checkpoints in its directory, or its controller's monitor."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from fullrank.cli.locate import locate
from fullrank.cli.policies import Trained, Version, trained
from fullrank.cli.runs import find_run
from fullrank.common.errors import CheckpointUnusable
from fullrank.config import RunConfig, read_config
from fullrank.rpc.located import is_address
from fullrank.rpc.monitor import Monitor
from fullrank.runs.checkpoint import read_manifest, saved
from fullrank.runs.recovery import CHECKPOINTS
from fullrank.wiring import training_of


class Source(Protocol):
    """A run's policies."""

    name: str
    config: RunConfig
    directory: Path | None
    """The run's, if it is here."""

    def newer(self, than: Version) -> Trained | None:
        """The newest policies, or None if they are not after ``than``.

        Raises:
            CheckpointUnusable: The directory holds none.
            NotFound: The controller has none.
            ServiceLost: The controller is away.
        """


class Checkpoints:
    """Those in a run's directory."""

    def __init__(self, directory: Path) -> None:
        self.name, self.config = directory.name, read_config(directory)
        self.directory: Path | None = directory
        self._run = directory

    def newer(self, than: Version) -> Trained | None:
        """As ``Source.newer``; only of newer ones more than the manifest is read."""
        for path in saved(self._run / CHECKPOINTS)[:1]:
            with suppress(CheckpointUnusable):  # a damaged one is passed over below
                manifest = read_manifest(path)
                if Version.of(manifest["iteration"], manifest["facts"]) <= than:
                    return None
        found = trained(self._run, self.config)
        return found if found.version > than else None


class Published:
    """Those that a controller publishes.

    Args:
        name: What to call the run.
        dial: Dials its monitor.

    Raises:
        ServiceLost: The controller is away.
    """

    directory: Path | None = None

    def __init__(self, name: str, dial: Callable[[], Monitor]) -> None:
        self._dial = dial
        with dial() as monitor:
            self.name, self.config = name, monitor.setup().config
        self._training = training_of(self.config)
        self._training.close()

    def newer(self, than: Version) -> Trained | None:
        """As ``Source.newer``."""
        with self._dial() as monitor:
            policies = monitor.policies()
        version = Version(policies.term, policies.iteration)
        if version <= than:
            return None
        algorithm = self._training.algorithm
        for section in algorithm.sections:
            if section.role == "policy":
                algorithm.view(section.id)[:] = policies.parameters[section.unit]
        algorithm.written()
        return Trained(version, self._training.agents, algorithm)


def source_of(run: str, certificates: Path | None) -> Source:
    """The policies of a run named by its directory, its name, or ``host:port`` of its monitor.

    Raises:
        FullrankError: There is no such run, or its controller is away.
    """
    if is_address(run):
        return Published(run, locate(run, certificates))
    return Checkpoints(find_run(Path(run)))
