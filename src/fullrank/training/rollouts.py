"""Playing: the transitions of an iteration, and the returns of whole episodes.

Everything here is a pure function of the seed, the parameters and the iteration, so the controller,
the local driver and an evaluation play the same episodes.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import CheckpointUnusable, EnvironmentFailed
from fullrank.common.seeding import derive, stream
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Discrete, Environment, Step
from fullrank.replay.layout import Layout

Array = NDArray[np.float64]

Act: TypeAlias = Callable[[FloatArray], FloatArray]
"""Joint observations (E, sum of observation sizes) to joint actions (E, sum of action sizes)."""


class Player(Protocol):
    """Who explores, for example an ``Algorithm``."""

    def act(
        self, observation: FloatArray, *, iteration: int, step: int, alive: BoolArray
    ) -> FloatArray:
        """See ``Algorithm.act``."""


class Collected(NamedTuple):
    """What a collection gives: transitions step by step, copy by copy within a step."""

    rows: FloatArray
    """Packed transitions, shape (steps * E, row_size), contiguous."""
    returns: Array
    """Sum over all agents for each episode that ended, in order of ending, shape (n,)."""
    side_returns: dict[str, Array]
    """The same for each side."""


class Evaluation(NamedTuple):
    """Undiscounted returns of whole episodes, by ascending episode."""

    returns: Array
    """Sum over all agents, shape (episodes,)."""
    side_returns: dict[str, Array]
    """Sum over the agents of each side, shape (episodes,)."""


class _Episodes:
    """The episodes running in E copies; at first every copy waits for its reset."""

    def __init__(self, environment: Environment) -> None:
        shape = (environment.copies, len(environment.agents))
        self._environment = environment
        self._earned = np.zeros(shape)
        self.alive = np.ones(shape, dtype=bool)
        self.ended = np.ones(environment.copies, dtype=bool)
        size = sum(agent.observation_size for agent in environment.agents)
        self.observation: FloatArray = np.zeros((environment.copies, size), dtype=np.float32)

    def waiting(self) -> IntArray:
        """Copies whose episode is over, ascending."""
        return np.flatnonzero(self.ended)

    def begin(self, copies: IntArray, seeds: Sequence[int]) -> None:
        """Reset the copies that wait."""
        self.observation = self._environment.reset(seeds, copies.tolist())
        self._earned[copies] = 0.0
        self.alive[copies] = True
        self.ended[copies] = False

    def advance(self, action: FloatArray) -> Step:
        """Step all copies."""
        step = self._environment.step(action)
        self._earned += step.reward
        self.observation, self.alive, self.ended = (
            step.observation,
            step.alive.copy(),
            step.ended.copy(),
        )
        return step

    def earned(self) -> Array:
        """Returns of the episodes that ended in the last step, shape (ended copies, M)."""
        return self._earned[self.ended]


class Rollout:
    """Collects transitions with the current policies; episodes go on from call to call.

    Episode k of copy c starts from the seed derived from (seed, "episode", c, k).
    """

    def __init__(
        self, environment: Environment, player: Player, layout: Layout, *, seed: int
    ) -> None:
        self._environment, self._player, self._layout = environment, player, layout
        self._seed = seed
        self._finished = np.zeros(environment.copies, dtype=np.int64)
        self._steps = np.zeros(environment.copies, dtype=np.int64)
        self._actions: list[FloatArray] = []
        self._episodes = _Episodes(environment)

    def collect(self, steps: int, iteration: int) -> Collected:
        """Play ``steps`` steps in every copy.

        Args:
            steps: Steps of each copy.
            iteration: Keys the exploration (-1 for the warm-up).
        """
        copies, episodes = self._environment.copies, self._episodes
        rows = np.empty((steps, copies, self._layout.row_size), dtype=np.float32)
        earned = []
        for step in range(steps):
            self._begin()
            observation, alive = episodes.observation, episodes.alive
            action = self._player.act(observation, iteration=iteration, step=step, alive=alive)
            outcome = episodes.advance(action)
            self._layout.pack(
                observation=observation,
                action=action,
                reward=outcome.reward,
                next_observation=outcome.observation,
                terminated=outcome.terminated,
                alive=alive,
                out=rows[step],
            )
            self._note(action)
            earned.append(episodes.earned())
        by_agent = np.concatenate(earned)
        sides = _by_side(self._environment.agents, by_agent)
        return Collected(rows.reshape(steps * copies, -1), by_agent.sum(axis=1), sides)

    def _note(self, action: FloatArray) -> None:
        """Count the step, and keep the actions that lead to where running episodes are."""
        ended = self._episodes.ended
        self._finished += ended
        self._steps = np.where(ended, 0, self._steps + 1)
        self._actions.append(action)
        del self._actions[: len(self._actions) - int(self._steps.max())]

    def _begin(self) -> None:
        waiting = self._episodes.waiting()
        if waiting.size:
            self._start(waiting)

    def _start(self, copies: IntArray) -> None:
        """Reset copies to the first state of their current episodes."""
        keys = zip(copies.tolist(), self._finished[copies].tolist(), strict=True)
        seeds = [derive(self._seed, "episode", copy, number) for copy, number in keys]
        self._episodes.begin(copies, seeds)

    def state(self) -> dict[str, NDArray[Any]]:
        """Where the collection stands, from which ``load`` steps every environment there again.

        Episodes finished by each copy and steps taken in the running one, shape (E,); the actions
        of the last steps, shape (steps, E, sum of action sizes); what is seen now.
        """
        size = sum(self._layout.action_sizes)
        actions = np.array(self._actions, np.float32).reshape(-1, self._environment.copies, size)
        return {
            "episodes_finished": self._finished.copy(),
            "episode_steps": self._steps.copy(),
            "actions": actions,
            "observation": self._episodes.observation.copy(),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what ``state`` gave.

        Raises:
            CheckpointUnusable: The state is missing or belongs to another number of copies.
            EnvironmentFailed: Equal seeds and actions do not lead where they led before.
        """
        finished, steps = state.get("episodes_finished"), state.get("episode_steps")
        if finished is None or steps is None or finished.shape != self._finished.shape:
            raise CheckpointUnusable(
                f"the checkpoint does not hold the episodes of {len(self._finished)} copies; "
                "resume with the version and the number of copies that the run was started with"
            )
        self._finished, self._steps = finished.astype(np.int64), steps.astype(np.int64)
        self._actions = list(state["actions"])
        self._episodes = _Episodes(self._environment)
        self._repeat()
        running = self._steps > 0
        if not np.array_equal(
            self._episodes.observation[running], state["observation"][running], equal_nan=True
        ):
            raise EnvironmentFailed(
                "the environment does not repeat itself: the same seeds and actions lead to other "
                "observations, so that episodes which cross iterations cannot be resumed; draw "
                "only from the generator that reset(seed) seeds, or let episodes end with "
                "iterations (collect.steps a multiple of their length)"
            )

    def _repeat(self) -> None:
        """Play the kept actions; a copy joins when its running episode began.

        Until then it plays something, for copies are stepped together.
        """
        episodes, steps = self._episodes, len(self._actions)
        for number, action in enumerate(self._actions):
            left = steps - number
            self._start(np.flatnonzero((self._steps == left) | episodes.ended))
            episodes.advance(action)
        episodes.ended[:] = self._steps == 0


def evaluate(environment: Environment, act: Act, episodes: int, seed: int) -> Evaluation:
    """Play whole episodes; episode e starts from the seed derived from (seed, "evaluation", e).

    Copies take the next episode as they become free, so the result does not depend on their number
    if ``act`` treats every copy alike.

    Args:
        environment: Any number of copies; all are reset.
        act: For example ``algorithm.act_greedily``, or ``random_actions(...)``.
        episodes: How many, at least 1.
        seed: Fixes the initial states.
    """
    running = _Episodes(environment)
    episode_of = np.zeros(environment.copies, dtype=np.int64)
    by_agent = np.zeros((episodes, len(environment.agents)))
    begun, open_episodes = 0, episodes
    while open_episodes:
        waiting = running.waiting()
        episode_of[waiting] = np.arange(begun, begun + waiting.size)  # those beyond are discarded
        if waiting.size:
            seeds = [derive(seed, "evaluation", number) for number in episode_of[waiting].tolist()]
            running.begin(waiting, seeds)
            begun += waiting.size
        running.advance(act(running.observation))
        ended = episode_of[running.ended]
        counted = ended < episodes
        by_agent[ended[counted]] = running.earned()[counted]
        open_episodes -= int(counted.sum())
    return Evaluation(by_agent.sum(axis=1), _by_side(environment.agents, by_agent))


def evaluate_and_close(environment: Environment, act: Act, episodes: int, seed: int) -> Evaluation:
    """``evaluate`` in an environment that nobody needs any more."""
    with closing(environment):
        return evaluate(environment, act, episodes, seed)


def random_actions(agents: Sequence[AgentSpec], *, seed: int) -> Act:
    """The random policy: uniform over one-hot vectors, or uniform in the box.

    The draws of its n-th call are keyed by (seed, "random_action", n).
    """
    low, high, offsets, choices = _action_tables(agents)
    calls = count()

    def act(observation: FloatArray) -> FloatArray:
        generator = stream(seed, "random_action", next(calls))
        copies = len(observation)
        action = generator.uniform(low, high, size=(copies, len(low))).astype(np.float32)
        picked = generator.integers(0, choices, size=(copies, len(choices)))
        np.put_along_axis(action, offsets + picked, 1.0, axis=1)
        return action

    return act


def _action_tables(agents: Sequence[AgentSpec]) -> tuple[Array, Array, IntArray, IntArray]:
    """Bounds of every entry (0 in one-hot parts); first entry and size of every one-hot part."""
    low, high, offsets, choices = list[float](), list[float](), list[int](), list[int]()
    for agent in agents:
        if isinstance(agent.action, Discrete):
            offsets.append(len(low))
            choices.append(agent.action.n)
            low += [0.0] * agent.action.n
            high += [0.0] * agent.action.n
        else:
            low += agent.action.low
            high += agent.action.high
    return (
        np.array(low),
        np.array(high),
        np.array(offsets, dtype=np.int64),
        np.array(choices, dtype=np.int64),
    )


def _by_side(agents: Sequence[AgentSpec], by_agent: Array) -> dict[str, Array]:
    """Sum over the agents of each side, sides in order of first appearance."""
    sides = [agent.side for agent in agents]
    return {
        side: by_agent[:, [own == side for own in sides]].sum(axis=1)
        for side in dict.fromkeys(sides)
    }
