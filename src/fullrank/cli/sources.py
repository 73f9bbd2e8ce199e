"""Sources of a run's policies: checkpoints in its directory, or its controller's monitor."""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from fullrank.algorithms.roles import ACTING
from fullrank.cli.locate import locate
from fullrank.cli.policies import Trained, Version, trained
from fullrank.cli.runs import find_run, runnable_config
from fullrank.common.errors import CheckpointUnusable, Malformed, NotFound, ServiceLost
from fullrank.common.types import FloatArray
from fullrank.config.tree import RunConfig
from fullrank.config.trust import check_trusted
from fullrank.host.run_directory import is_address
from fullrank.net.monitor import Monitor, Policies
from fullrank.runs.checkpoint import read_manifest, saved
from fullrank.runs.identity import CHECKPOINTS
from fullrank.wiring import training_of

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
"""Bounds of the pause between two attempts to find newer policies, seconds."""


class Source(Protocol):
    """Source of a run's policies."""

    name: str
    config: RunConfig
    directory: Path | None
    """The run's directory, if it is on this machine."""

    def newer(self, than: Version) -> Trained | None:
        """The newest policies, or None if they are not after ``than``.

        Raises:
            CheckpointUnusable: The directory holds no usable checkpoint.
            NotFound: The controller has published no policies.
            ServiceLost: The controller cannot be reached.
        """


class CheckpointPolicies:
    """Policies of the checkpoints in a run's directory.

    Args:
        directory: The run's directory.
        trusted: Environments of other packages that the user has named.

    Raises:
        ConfigError: The run names another such environment, which the user has not trained.
    """

    def __init__(self, directory: Path, trusted: Collection[str] = ()) -> None:
        self.name, self.config = directory.name, runnable_config(directory, trusted)
        self.directory: Path | None = directory
        self._run = directory

    def newer(self, than: Version) -> Trained | None:
        """As ``Source.newer``; reads only the manifest of policies that are not newer."""
        for path in saved(self._run / CHECKPOINTS)[:1]:
            with suppress(CheckpointUnusable):  # a damaged one is passed over below
                manifest = read_manifest(path)
                if Version.of(manifest["iteration"], manifest["facts"]) <= than:
                    return None
        policies = trained(self._run, self.config)
        return policies if policies.version > than else None


class PublishedPolicies:
    """Policies that a controller publishes.

    Args:
        name: Name of the run in messages.
        dial: Dials the run's monitor.
        trusted: Environments of other packages that the user has named.

    Raises:
        ConfigError: The run names another such environment, which the user has not trained.
        ServiceLost: The controller cannot be reached.
    """

    directory: Path | None = None

    def __init__(
        self, name: str, dial: Callable[[], Monitor], trusted: Collection[str] = ()
    ) -> None:
        self._dial = dial
        with dial() as monitor:
            self.name, self.config = name, monitor.setup().config
        check_trusted(self.config.environment, origin=name, trusted=trusted)
        self._training = training_of(self.config)
        self._training.collector.close()

    def newer(self, than: Version) -> Trained | None:
        """Return newer policies, if there are any; see ``Source.newer``."""
        with self._dial() as monitor:
            policies = monitor.policies()
        version = Version(policies.term, policies.iteration)
        if version <= than:
            return None
        algorithm = self._training.algorithm
        for section in algorithm.problem.sections:
            if section.role in ACTING:
                _copy(policies, section.owner or 0, algorithm.parameters.view(section.id))
        algorithm.parameters.written()
        return Trained(version, self._training.collector.agents, algorithm)


def _copy(policies: Policies, agent: int, into: FloatArray) -> None:
    """Copy an agent's parameters.

    Raises:
        Malformed: There are none, or of another network.
    """
    parameters = policies.parameters.get(agent, np.empty(0, np.float32))
    if len(parameters) != len(into):
        raise Malformed(
            f"the policy of agent {agent} has {len(parameters)} parameters, and its network "
            f"{len(into)}: it is of another run"
        )
    into[:] = parameters


def source_of(run: str, certificates: Path | None, trusted: Collection[str]) -> Source:
    """Source for a run named by its directory, its name, or ``host:port`` of its monitor.

    Args:
        run: The run.
        certificates: Value of ``--certificates``.
        trusted: Values of ``--trust``.

    Raises:
        FullrankError: There is no such run, or its controller cannot be reached.
    """
    if is_address(run):
        return PublishedPolicies(run, locate(run, certificates), trusted)
    return CheckpointPolicies(find_run(Path(run)), trusted)


def follow(source: Source, *, seen: Version, patience_s: float) -> Iterator[Trained]:
    """Yield a run's policies as they are published, to the last ones; late readers skip some.

    Args:
        source: The run.
        seen: The policies seen last.
        patience_s: Longest wait for newer ones, seconds.

    Raises:
        ServiceLost: No newer policies came in time.
    """
    while seen.iteration < source.config.iterations - 1:
        newer = _await(source, seen, patience_s)
        seen = newer.version
        yield newer


def _await(source: Source, seen: Version, patience_s: float) -> Trained:
    def give_up(attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        reason = attempt.outcome.exception() or "is the run still going?"
        raise ServiceLost(
            f"{source.name} has published no policies after iteration "
            f"{seen.iteration} for {patience_s:g} s: {reason}"
        )

    patient = Retrying(
        retry=retry_if_result(lambda newer: newer is None)
        | retry_if_exception_type((CheckpointUnusable, NotFound, ServiceLost)),
        wait=wait_random_exponential(multiplier=SHORTEST_PAUSE_S, max=LONGEST_PAUSE_S),
        stop=stop_after_delay(patience_s),
        retry_error_callback=give_up,
    )
    newer = patient(source.newer, seen)
    assert newer is not None
    return newer
