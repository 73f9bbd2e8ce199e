"""The newest policies of a run, episodes played by them, and the outcome of a finished run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from fullrank.algorithms import Algorithm
from fullrank.cli.progress import counting
from fullrank.cli.say import kept_stdout
from fullrank.common.errors import CheckpointUnusable, ConfigError, NoEnd
from fullrank.common.types import JSON, Interval
from fullrank.config.plugins import spec_of_environment
from fullrank.config.tree import RunConfig, as_tables
from fullrank.environments import AgentSpec, Environment, variant_of
from fullrank.environments.base import is_adapted
from fullrank.environments.particle.scene import Drawable
from fullrank.environments.processes import EnvironmentProcess
from fullrank.runs.checkpoint import newest, saved
from fullrank.runs.evaluations import append, from_facts, read_evaluations
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.progress import ReferenceReturns
from fullrank.runs.record import METRICS, read_records
from fullrank.runs.statistics import mean_interval, wilson
from fullrank.sinks import open_evaluation_sinks
from fullrank.training.episodes import episode_statistics
from fullrank.training.evaluation import (
    Act,
    Evaluation,
    Greedy,
    evaluate,
    evaluate_and_close,
    random_actions,
)
from fullrank.training.references import GOOD, RANDOM, references, share_closed
from fullrank.training.trainer import part
from fullrank.wiring.plugins import (
    algorithm_config_of,
    algorithm_of,
    environment_of,
    networks_of,
    problem_that_fits,
)
from fullrank.wiring.training import training_of

COPIES = 50
"""Number of episodes played together."""


class Version(NamedTuple):
    """Version of a run's policies; versions of a later term supersede those of earlier ones."""

    term: int
    """Term in which they were saved; 0 if unknown."""
    iteration: int
    """The last iteration that they were trained on."""

    @classmethod
    def saved(cls, iteration: int, facts: JSON) -> Self:
        """Version of a checkpoint's policies."""
        return cls(facts.get("term", 0), iteration)


NONE = Version(0, -1)
"""Precedes every version."""


class Trained(NamedTuple):
    """Policies of one version, with the agents that they act for."""

    version: Version
    agents: tuple[AgentSpec, ...]
    algorithm: Algorithm

    @property
    def iteration(self) -> int:
        """The last iteration that they were trained on."""
        return self.version.iteration


@kept_stdout()
def trained(directory: Path, config: RunConfig) -> Trained:
    """The policies of the newest checkpoint.

    Raises:
        CheckpointUnusable: There is no usable checkpoint.
    """
    checkpoint = newest(directory / CHECKPOINTS)
    training = training_of(config)
    with closing(training.collector):
        training.trainer.load(checkpoint.arrays)
    version = Version.saved(checkpoint.iteration, checkpoint.facts)
    return Trained(version, training.collector.agents, training.algorithm)


@kept_stdout()
def play_episodes(config: RunConfig, act: Act | None, *, episodes: int, seed: int) -> Evaluation:
    """Play whole episodes by ``act``; None is the random policy."""
    environment = environment_of(config, copies=min(episodes, COPIES))
    act = act or random_actions(environment.agents, seed=seed)
    with counting("playing", episodes, "episodes") as told:
        return evaluate_and_close(environment, act, episodes, seed, told=told)


@kept_stdout()
def play_references(config: RunConfig, *, episodes: int, seed: int) -> dict[str, Evaluation]:
    """Play the same episodes by the references of the environment, by their names."""
    environment = environment_of(config, copies=min(episodes, COPIES))
    played = {}
    with closing(environment):
        for name, act in references(environment, seed=seed).items():
            with counting("playing", episodes, f"episodes by the policy {name!r}") as told:
                played[name] = evaluate(environment, act, episodes, seed, told=told)
    return played


def summary(played: Evaluation) -> dict[str, str]:
    """Mean return, that of each of several sides, and win rate, with 95 % intervals."""
    sides = played.side_returns if len(played.side_returns) > 1 else {}
    values = {"return": str(mean_interval(played.returns))}
    values |= {side: str(mean_interval(returns)) for side, returns in sides.items()}
    if played.won is not None:
        percent = Interval(*(100 * value for value in wilson(played.won)))
        values["win rate in %"] = str(percent)
    return values


def facts_of(
    config: RunConfig, policies: Trained, played: Mapping[str, Evaluation], *, seed: int
) -> JSON:
    """Return the facts of an evaluation, as ``fullrank eval --json`` prints them.

    Args:
        config: Configuration of the run.
        policies: The policies that played.
        played: Episodes of each policy: ``trained``, and the references if they were played.
        seed: Seed of the initial states.
    """
    (episodes,) = {len(evaluation.returns) for evaluation in played.values()}
    closed = share_closed(played, "trained")
    version = policies.version
    return {
        "environment": config.environment.name,
        "variant": variant_of(config.environment.name, config.environment.params),
        "iteration": version.iteration,
        "term": version.term,
        "episodes": episodes,
        "seed": seed,
        **{name: _returns(evaluation) for name, evaluation in played.items()},
        **({} if closed is None else {"gap_closed": closed.facts()}),
        "statistics": _statistics(played["trained"]),
    }


def _statistics(played: Evaluation) -> dict[str, float]:
    """Return the statistics of greedy episodes by PyMARL's names."""
    statistics = episode_statistics(played.returns, played.lengths, played.won)
    return {f"test_{name}": value for name, value in statistics.items()}


def _returns(evaluation: Evaluation) -> JSON:
    sides = {
        side: mean_interval(values).facts() for side, values in evaluation.side_returns.items()
    }
    facts = {**mean_interval(evaluation.returns).facts(), "sides": sides}
    if evaluation.won is not None:
        facts["win_rate"] = wilson(evaluation.won).facts()
    return facts


def environment_beside(config: RunConfig) -> Environment:
    """The environment that ``follow`` plays; that of another package begins in its own process."""
    named = config.environment
    if not is_adapted(named.name):
        return environment_of(config, copies=COPIES)
    return EnvironmentProcess(named.name, agents=named.agents, params=named.params)


LOOK_S = 1.0
"""Time between two looks for a newer checkpoint."""
MOST_BYTES = 2**29
"""Largest networks, with targets and moments, that are held a second time."""


def follow(
    path: Path,
    config: RunConfig,
    environment: Environment,
    rest: Callable[[float], None],
    compare: Callable[[ReferenceReturns], None],
) -> None:
    """Play references and the policies of a run that trains, and record the evaluations.

    Policies by which an episode does not end are passed over.

    Args:
        path: Directory of the run.
        config: Its configuration, with the devices of this process.
        environment: Plays all episodes.
        rest: Called with the least time to wait, seconds, after every step; raises at the end.
        compare: Takes the returns so far.

    Raises:
        ConfigError: The networks are too large to be held twice.
        EnvironmentFailed: The environment raised, or its process has ended.
    """
    algorithm = _algorithm_beside(config, environment)
    episodes, act = episodes_of(config), Greedy(algorithm.actor)
    played: dict[str, Evaluation] = {}

    def play(name: str, act: Act) -> float:
        played[name] = evaluate(environment, act, episodes, SEED, told=lambda _: rest(0.0))
        return float(played[name].returns.mean())

    acts = references(environment, seed=SEED)
    means = {name: play(name, acts[name]) for name in (RANDOM, GOOD) if name in acts}
    compare(standing := ReferenceReturns(random=means[RANDOM], good=means.get(GOOD)))
    earlier = [Version(each.term, each.iteration) for each in read_evaluations(path)]
    sinks = open_evaluation_sinks(
        path,
        config.metrics.sinks,
        first_iteration=max(earlier, default=NONE).iteration + 1,
        config=as_tables(config),
    )
    with closing(sinks):
        for version in _versions(path, algorithm, rest):
            if version in earlier:
                continue
            try:
                greedy = play("trained", act)
            except NoEnd:  # perhaps of these policies alone
                continue
            facts = facts_of(
                config, Trained(version, environment.agents, algorithm), played, seed=SEED
            )
            append(path, facts)
            sinks.write(from_facts(facts))
            compare(replace(standing, greedy=greedy, iterations=version.iteration + 1))


def _algorithm_beside(config: RunConfig, environment: Environment) -> Algorithm:
    spec = spec_of_environment(config, environment)
    networks, bytes_ = networks_of(problem_that_fits(algorithm_config_of(config), spec))
    if bytes_ > MOST_BYTES:
        raise ConfigError(f"{networks} are too large to be held twice")
    return algorithm_of(config, spec)


def _versions(path: Path, algorithm: Algorithm, rest: Callable[[float], None]) -> Iterator[Version]:
    """Load each checkpoint that is the newest when it is looked for; yield its version."""
    last: list[Path] = []
    while True:
        rest(LOOK_S)
        if (found := saved(path / CHECKPOINTS)[:1]) in ([], last):
            continue
        with suppress(CheckpointUnusable):  # removed meanwhile
            checkpoint = newest(path / CHECKPOINTS)
            algorithm.optimiser.load(part(checkpoint.arrays, "algorithm"))
            last = found
            yield Version.saved(checkpoint.iteration, checkpoint.facts)


EPISODES, FEW = 100, 10
"""Episodes played by each policy; few where copies are separate objects, which may be slow."""
SEED = 1000
"""Seed of the initial states, that of ``fullrank eval``."""


def outcome(path: Path, config: RunConfig) -> Iterator[str]:
    """Evaluate the final policies, record the result, and yield the lines that report it.

    Where no episode ended in training, none is played: it might have no end.
    """
    if all(record.return_mean is None for record in read_records(path / METRICS)):
        yield "no episode ended, so there is no return to report"
        return
    policies = trained(path, config)
    episodes = episodes_of(config)
    evaluations = read_evaluations(path)
    earlier = [
        evaluation for evaluation in evaluations if evaluation.iteration < policies.iteration
    ]
    environment = environment_of(config, copies=min(episodes, COPIES))
    drawable = isinstance(environment, Drawable)
    try:
        with counting("playing", episodes, "episodes") as told:
            act = Greedy(policies.algorithm.actor)
            greedy = evaluate_and_close(environment, act, episodes, SEED, told=told)
        played = {"trained": greedy, **play_references(config, episodes=episodes, seed=SEED)}
    except NoEnd as error:
        yield str(error)
        return
    random = summary(played[RANDOM])
    if policies.version not in (
        Version(evaluation.term, evaluation.iteration) for evaluation in evaluations
    ):
        append(path, facts_of(config, policies, played, seed=SEED))
    for name, value in summary(greedy).items():
        words = f"without exploration, {episodes} episodes; random play {random[name]}"
        yield f"{name}: {value} {words}"
    if (closed := share_closed(played, "trained")) is not None:
        good = summary(played[GOOD])["return"]
        yield f"gap closed from random play to a good policy ({good}): {closed.mean:.0%}"
    if earlier:
        yield f"the evaluation before, at iteration {earlier[-1].iteration}: {earlier[-1].returns}"
    if drawable:
        yield f"watch an episode: fullrank render {path}"


def episodes_of(config: RunConfig) -> int:
    """Number of episodes that each policy plays."""
    return FEW if is_adapted(config.environment.name) else EPISODES
