"""Keyed collection: its bits follow from keys and parameters, whatever is played beside."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fullrank.common.errors import CheckpointUnusable, ConfigError, EnvironmentFailed
from fullrank.config import RunConfig, load
from fullrank.environments import Environment
from fullrank.local import LocalIteration, LocalRun
from fullrank.replay.episodes import episodes_in
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.block_player import BlockPlayer, PlayedBlock
from fullrank.training.blocks import BlockKey
from fullrank.wiring.plugins import algorithm_of, environment_of
from fullrank.wiring.training import Training, block_player_of, plan_of, training_of

VALUES: dict[str, Any] = {
    "algorithm.name": "qmix",
    "algorithm.hidden": 12,
    "algorithm.micro_batches": 2,
    "algorithm.batch_size": 10,
    "algorithm.target_every": 2,
    "algorithm.exploration_steps": 400,
    "environment.name": "switch_riddle",
    "environment.agents": 3,
    "environment.copies": 5,
    "collect.warmup": 60,
    "collect.warmup_copies": 4,
}
ACTORS: dict[str, Any] = {
    "algorithm.name": "maddpg",
    "algorithm.hidden": 16,
    "algorithm.batch_size": 32,
    "environment.name": "cooperative_navigation",
    "environment.agents": 3,
    "environment.copies": 5,
    "collect.warmup": 64,
    "collect.warmup_copies": 4,
}
FAMILIES = {
    "qmix": VALUES,
    "maddpg": ACTORS,
}


def config(family: str, **options: Any) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    return load(options=FAMILIES[family] | {"iterations": 5} | keys).check().config


def keyed(family: str, block: int = 2, **options: Any) -> RunConfig:
    return config(family, collect__mode="keyed", collect__block=block, **options)


def trained(settings: RunConfig) -> tuple[list[LocalIteration], str]:
    run = LocalRun(settings, coded=False)
    iterations = run.train()
    run.training.collector.close()
    return iterations, run.parameter_digest()


@pytest.mark.parametrize("lag", [0, 1])
def test_one_block_of_all_copies_plays_what_inline_collection_plays(lag: int) -> None:
    """For algorithms that learn from whole episodes, keyed = inline with the same lag."""
    inline = trained(config("qmix", collect__lag=lag))
    assert trained(keyed("qmix", block=5, collect__lag=lag)) == inline
    assert trained(keyed("qmix", block=2, collect__lag=lag)) != inline


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def training(family: str) -> Iterator[Training]:
    training = training_of(keyed(family))
    yield training
    training.collector.close()


def rollout_of(training: Training) -> KeyedCollection:
    collection = training.collector.collection
    assert isinstance(collection, KeyedCollection)
    return collection


def player_of(settings: RunConfig, training: Training) -> BlockPlayer:
    return block_player_of(
        settings,
        training.environment,
    )


def test_a_block_is_the_same_whoever_plays_it_and_after_whatever(
    family: str, training: Training
) -> None:
    settings, rollout = keyed(family), rollout_of(training)
    play, keys = rollout.begin(0), [BlockKey(0, 0), BlockKey(0, 1), BlockKey(0, 2)]
    one, other = player_of(settings, training), player_of(settings, training)
    first = {key: one.play(key, play).digest for key in keys}
    other.play(BlockKey(3, 1), play)  # of another iteration
    assert {key: other.play(key, play).digest for key in reversed(keys)} == first
    assert len(set(first.values())) == len(keys)
    one.close()
    other.close()


def test_every_copy_plays_one_whole_episode(family: str, training: Training) -> None:
    problem = training.problem
    collected = training.collector.collect(0)
    assert len(collected.returns) == 5
    steps = int(collected.statistics["env_steps"])
    if problem.episodes is not None:
        assert len(episodes_in(collected.rows, problem.episodes.length)) == 5
        assert len(collected.rows) == steps + 5
    else:
        assert len(collected.rows) == steps == 5 * training.collector.horizon


def test_lag_decides_which_parameters_play(training: Training) -> None:
    rollout = rollout_of(training)
    rollout.lag = 3
    assert [rollout.version_of(iteration) for iteration in range(6)] == [0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize(("lag", "at"), [(0, 1), (1, 2), (3, 2), (3, 4)])
def test_a_resumed_run_plays_what_the_uninterrupted_one_plays(lag: int, at: int) -> None:
    settings = keyed("qmix", collect__lag=lag)
    whole = LocalRun(settings, coded=False)
    steps: Iterator[LocalIteration] = iter(whole)
    for _ in range(at):
        next(steps)
    state = whole.training.state(resume_at=at)
    training = training_of(settings)
    training.load(state, resume_at=at)
    again = training.state(resume_at=at)
    assert again.keys() == state.keys()
    assert all(again[name].tobytes() == state[name].tobytes() for name in state)
    for iteration in range(at, min(5, at + lag + 1)):
        resumed = training.collector.collect(iteration)
        expected = whole.training.collector.collect(iteration)
        assert resumed.rows.tobytes() == expected.rows.tobytes()
        assert resumed.statistics == expected.statistics
    for each in (training, whole.training):
        each.collector.close()


def test_a_checkpoint_of_another_lag_is_refused() -> None:
    run = LocalRun(keyed("qmix", collect__lag=1), coded=False)
    steps = iter(run)
    next(steps)
    next(steps)
    training = training_of(keyed("qmix", collect__lag=2))
    with pytest.raises(CheckpointUnusable, match=r"collect\.lag"):
        training.load(run.training.state(resume_at=2), resume_at=2)
    training.collector.close()
    run.training.collector.close()


class Raising:
    """An environment that raises in its third step."""

    def __init__(self, environment: Environment) -> None:
        self._environment, self._steps = environment, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def step(self, action: np.ndarray[Any, Any]) -> Any:
        self._steps += 1
        if self._steps == 3:
            raise RuntimeError("the game is gone")
        return self._environment.step(action)


def test_an_environment_that_raises_is_named_and_replaced() -> None:
    settings = keyed("maddpg")
    training = training_of(settings)
    rollout = rollout_of(training)
    play, good = rollout.begin(0), player_of(settings, training)
    made: list[int] = []

    def make(copies: int) -> Environment:
        made.append(copies)
        environment = training_environment(settings, copies)
        broken: Any = Raising(environment)
        return broken if len(made) == 1 else environment

    algorithm = algorithm_of(settings, training.environment)
    player = BlockPlayer(make, algorithm, plan_of(settings), seed=settings.seed)
    with pytest.raises(EnvironmentFailed) as raised:
        player.play(BlockKey(0, 1), play)
    assert str(raised.value) == (
        "iteration 0, copies 2 to 3 of seed 0, step 2: RuntimeError('the game is gone')"
    )
    again: PlayedBlock = player.play(BlockKey(0, 1), play)
    assert again.digest == good.play(BlockKey(0, 1), play).digest
    assert made == [2, 2]
    for each in (player, good, training.collector):
        each.close()


class Broadcasting(Raising):
    """An environment that pays one reward in place of one for each agent."""

    def step(self, action: np.ndarray[Any, Any]) -> Any:
        step = self._environment.step(action)
        return step._replace(reward=step.reward[:, :1])


class Unbounded(Raising):
    """An environment whose observations are not finite."""

    def step(self, action: np.ndarray[Any, Any]) -> Any:
        step = self._environment.step(action)
        observation = step.observation.copy()
        observation[0, 0] = np.nan
        return step._replace(observation=observation)


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (Broadcasting, r"step 0: the environment returned reward of shape \(2, 1\), expected"),
        (Unbounded, "step 25: its episodes: next observation of agent 0 in row 0 is nan; "),
    ],
)
def test_an_environment_that_returns_what_it_must_not_is_named(
    broken: type[Raising], what: str
) -> None:
    settings = keyed("maddpg")
    training = training_of(settings)
    rollout = rollout_of(training)

    def make(copies: int) -> Environment:
        environment: Any = broken(training_environment(settings, copies))
        return environment  # type: ignore[no-any-return]

    algorithm = algorithm_of(settings, training.environment)
    player = BlockPlayer(make, algorithm, plan_of(settings), seed=settings.seed)
    with pytest.raises(EnvironmentFailed, match=f"iteration 0, copies 2 to 3 of seed 0, {what}"):
        player.play(BlockKey(0, 1), rollout.begin(0))
    player.close()
    training.collector.close()


def training_environment(settings: RunConfig, copies: int) -> Environment:
    return environment_of(settings, copies=copies)


def test_learners_that_collect_leave_no_blocks_to_play() -> None:
    options = {
        "algorithm.name": "darl1n",
        "environment.name": "grassland",
        "collect.mode": "keyed",
    }
    with pytest.raises(ConfigError, match="darl1n collects its transitions in learners"):
        training_of(load(options=options).check().config)
