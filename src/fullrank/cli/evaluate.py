"""``fullrank eval``: returns of a run's policies, compared with those of reference policies."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias

import numpy as np
import typer
from rich.table import Table
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from fullrank.algorithms.roles import ACTING
from fullrank.cli.locate import dial
from fullrank.cli.options import (
    CertificatesOption,
    EpisodesOption,
    InitialSeedOption,
    JsonOption,
    TrustOption,
)
from fullrank.cli.policies import (
    NONE,
    Trained,
    Version,
    facts_of,
    play_episodes,
    play_references,
    summary,
    trained,
)
from fullrank.cli.runs import find_run, runnable_config
from fullrank.cli.say import say
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import CheckpointUnusable, Malformed, NoEnd, NotFound, ServiceLost
from fullrank.common.types import FloatArray, Interval
from fullrank.config.toml import read_config
from fullrank.config.tree import RunConfig, as_tables
from fullrank.config.trust import check_trusted
from fullrank.environments import variant_of
from fullrank.host.run_directory import is_address
from fullrank.net.monitor import Monitor, Policies
from fullrank.runs.checkpoint import read_manifest, saved
from fullrank.runs.evaluations import EvaluationRecord, append, from_facts, read_evaluations
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.record import METRICS, begun, read_records
from fullrank.sinks import Fanout, open_evaluation_sinks
from fullrank.training.evaluation import Evaluation, Greedy
from fullrank.training.references import share_closed
from fullrank.wiring.training import training_of

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

    def iterations(self) -> int:
        """Number of iterations of the run, which an administrator may change."""


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
                if Version.saved(manifest["iteration"], manifest["facts"]) <= than:
                    return None
        policies = trained(self._run, self.config)
        return policies if policies.version > than else None

    def iterations(self) -> int:
        """As ``Source.iterations``."""
        return read_config(self._run).iterations


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
        self._iterations = self.config.iterations
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
        acting = [own for own in algorithm.problem.sections if own.role in ACTING]
        for number, section in enumerate(acting):
            _copy(policies, number, algorithm.parameters.view(section.id))
        algorithm.parameters.written()
        return Trained(version, self._training.collector.agents, algorithm)

    def iterations(self) -> int:
        """As ``Source.iterations``; the number known last while there is no controller."""
        with suppress(ServiceLost), self._dial() as monitor:
            self._iterations = monitor.status().iterations
        return self._iterations


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
        return PublishedPolicies(run, partial(dial, run, certificates), trusted)
    return CheckpointPolicies(find_run(run), trusted)


def newer_policies(source: Source, *, seen: Version, patience_s: float) -> Iterator[Trained]:
    """Yield a run's policies as they are published, to the last ones; late readers skip some.

    Args:
        source: The run.
        seen: The policies seen last.
        patience_s: Longest wait for newer ones, seconds.

    Raises:
        ServiceLost: No newer policies came in time.
    """
    while _goes_on(source, seen) and (newer := _await(source, seen, patience_s)) is not None:
        seen = newer.version
        yield newer


def _goes_on(source: Source, seen: Version) -> bool:
    """True unless the policies seen are the run's last ones."""
    return seen.iteration < source.iterations() - 1


def _await(source: Source, seen: Version, patience_s: float) -> Trained | None:
    """The next policies; None once there will be none."""

    def give_up(attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        reason = attempt.outcome.exception() or "is the run still going?"
        raise ServiceLost(
            f"{source.name} has published no policies after iteration "
            f"{seen.iteration} for {patience_s:g} s: {reason}"
        )

    patient = Retrying(
        retry=retry_if_result(lambda newer: newer is None and _goes_on(source, seen))
        | retry_if_exception_type((CheckpointUnusable, NotFound, ServiceLost)),
        wait=wait_random_exponential(multiplier=SHORTEST_PAUSE_S, max=LONGEST_PAUSE_S),
        stop=stop_after_delay(patience_s),
        retry_error_callback=give_up,
    )
    return patient(source.newer, seen)


SourceArgument: TypeAlias = Annotated[
    str,
    typer.Argument(help="Run directory, its name below runs/, or host:port of its monitor."),
]
RandomOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--random/--no-random",
        help="Play the references as well: random play and, where known, standing still and a good "
        "policy, an optimum or a heuristic that sees everything.",
    ),
]
FollowOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Play every set of policies that the run publishes until it ends, without the random "
        "policy; a local run also records the results in evaluations.jsonl and its metrics sinks.",
    ),
]
PatienceOption: TypeAlias = Annotated[
    float,
    typer.Option(
        "--patience", help="With --follow: longest wait for new policies, in seconds.", min=0
    ),
]


def evaluate(
    run: SourceArgument,
    episodes: EpisodesOption = 100,
    seed: InitialSeedOption = 1000,
    with_random: RandomOption = True,
    follow: FollowOption = False,
    patience: PatienceOption = 600.0,
    certificates: CertificatesOption = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play a run's newest policies greedily, and reference policies from the same initial states.

    The gap that a run has closed is the share of the way from random play to the good policy.
    """
    source = source_of(run, certificates, trust or [])
    if follow:
        _follow(source, episodes=episodes, seed=seed, patience_s=patience, as_json=as_json)
        return
    newest = source.newer(NONE)
    assert newest is not None
    act = Greedy(newest.algorithm.actor)
    played = {"trained": play_episodes(source.config, act, episodes=episodes, seed=seed)}
    if with_random:
        played |= play_references(source.config, episodes=episodes, seed=seed)
    if as_json:
        say(json.dumps(facts_of(source.config, newest, played, seed=seed)))
    else:
        variant = variant_of(source.config.environment.name, source.config.environment.params)
        title = f"{source.name} ({variant}) after iteration {newest.iteration}, {episodes} episodes"
        _show(played, title=title)


def _follow(source: Source, *, episodes: int, seed: int, patience_s: float, as_json: bool) -> None:
    """Evaluate, record and print every set of policies that the run publishes."""
    evaluated = _evaluated(source.directory) if source.directory else NONE
    sinks = Fanout[EvaluationRecord](())  # none for a run on another machine
    if source.directory is not None:
        sinks = open_evaluation_sinks(
            source.directory,
            source.config.metrics.sinks,
            first_iteration=evaluated.iteration + 1,
            config=as_tables(source.config),
        )
    with closing(sinks):
        for newer in newer_policies(source, seen=evaluated, patience_s=patience_s):
            act = Greedy(newer.algorithm.actor)
            try:
                played = play_episodes(source.config, act, episodes=episodes, seed=seed)
            except NoEnd as error:  # perhaps of these policies alone
                say(f"iteration {newer.iteration}: {error}", error=True)
                continue
            facts = facts_of(source.config, newer, {"trained": played}, seed=seed)
            if source.directory:
                append(source.directory, facts)
                sinks.write(from_facts(facts))
            if as_json:
                say(json.dumps(facts))
            else:
                words = ", ".join(f"{name} {value}" for name, value in summary(played).items())
                say(f"iteration {newer.iteration}: {words}")


def _evaluated(directory: Path) -> Version:
    """The last evaluated policies that no later term has superseded."""
    metrics = directory / METRICS
    terms = begun(read_records(metrics)) if metrics.exists() else {}
    versions = (
        Version(record.term, record.iteration)
        for record in read_evaluations(directory)
        if not record.superseded(terms)
    )
    return max(versions, default=NONE)


def _show(played: Mapping[str, Evaluation], *, title: str) -> None:
    first, *columns = summary(played["trained"])
    closed = share_closed(played, "trained")
    table = Table("policy", f"{first} [95 % interval]", *columns, title=title)
    for name, evaluation in played.items():
        table.add_row(name, *summary(evaluation).values())
    Terminal().print(table)
    if closed is not None:
        say(f"gap closed from random to good: {Interval(*(100 * value for value in closed))} %")
