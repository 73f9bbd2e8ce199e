"""Evaluation: whole episodes without exploration, and the random policy beside them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms import Player
from fullrank.common.seeding import derive, stream
from fullrank.common.types import FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Discrete, Environment
from fullrank.replay.layout import Layout
from fullrank.training.episodes import Array, Episodes, by_side
from fullrank.training.rollouts import Collected

Act: TypeAlias = Callable[[FloatArray], FloatArray]
"""Joint observations (E, sum of observation sizes) to joint actions (E, sum of action sizes)."""


class Greedy:
    """An actor without exploration, as an ``Act`` that carries its memory.

    Args:
        actor: Plays.
    """

    def __init__(self, actor: Player) -> None:
        self._actor, self._memory = actor, actor.memory(0)

    def begin(self, copies: IntArray, total: int) -> None:
        """Forget what was seen in the copies whose episodes start, of ``total`` copies."""
        if self._memory and len(self._memory[0]) != total:
            self._memory = self._actor.memory(total)
        for array in self._memory:
            array[copies] = 0.0

    def __call__(self, observation: FloatArray) -> FloatArray:
        """Greedy joint actions."""
        action, self._memory = self._actor.act_greedily(observation, self._memory)
        return action


class Evaluation(NamedTuple):
    """Undiscounted returns of whole episodes, by ascending episode."""

    returns: Array
    """Sum over all agents, shape (episodes,)."""
    side_returns: dict[str, Array]
    """Sum over the agents of each side, shape (episodes,)."""


def evaluate(environment: Environment, act: Act, episodes: int, seed: int) -> Evaluation:
    """Play whole episodes; episode e starts from the seed derived from (seed, "evaluation", e).

    Copies take the next episode as they become free, so the result does not depend on their number
    if ``act`` treats every copy alike.

    Args:
        environment: Any number of copies; all are reset.
        act: For example ``Greedy(algorithm.actor)``, or ``random_actions(...)``.
        episodes: How many, at least 1.
        seed: Fixes the initial states.
    """
    running = Episodes(environment)
    episode_of = np.zeros(environment.copies, dtype=np.int64)
    by_agent = np.zeros((episodes, len(environment.agents)))
    begun, open_episodes = 0, episodes
    while open_episodes:
        waiting = running.waiting()
        episode_of[waiting] = np.arange(begun, begun + waiting.size)  # those beyond are discarded
        if waiting.size:
            if isinstance(act, Greedy):
                act.begin(waiting, environment.copies)
            seeds = [derive(seed, "evaluation", number) for number in episode_of[waiting].tolist()]
            running.begin(waiting, seeds)
            begun += waiting.size
        running.advance(act(running.observation))
        ended = episode_of[running.ended]
        counted = ended < episodes
        by_agent[ended[counted]] = running.earned()[counted]
        open_episodes -= int(counted.sum())
    return Evaluation(by_agent.sum(axis=1), by_side(environment.agents, by_agent))


def evaluate_and_close(environment: Environment, act: Act, episodes: int, seed: int) -> Evaluation:
    """``evaluate``, then close the environment."""
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


class Evaluations:
    """Stand-in for ``Rollout`` where learners collect: returns of whole episodes, no transitions.

    Args:
        environment: An evaluation plays one episode in each copy.
        actor: Plays without exploration.
        layout: Of a transition.
        seed: Evaluation k is keyed by (seed, "evaluations", k).
        every: Iterations from one evaluation to the next.
    """

    def __init__(
        self,
        environment: Environment,
        actor: Player,
        layout: Layout,
        *,
        seed: int,
        every: int,
    ) -> None:
        self._environment, self._actor = environment, actor
        self._nothing = np.empty((0, layout.row_size), dtype=np.float32)
        self._seed, self._every = seed, every

    def collect(self, steps: int, iteration: int) -> Collected:
        """Play the iteration's evaluation if it has one; episodes are whole, whatever ``steps``."""
        if iteration % self._every:
            return Collected(self._nothing, np.empty(0), {})
        played = evaluate(
            self._environment,
            Greedy(self._actor),
            self._environment.copies,
            derive(self._seed, "evaluations", iteration),
        )
        return Collected(self._nothing, played.returns, played.side_returns)

    def state(self) -> dict[str, NDArray[Any]]:
        """Empty: evaluations are independent of one another."""
        return {}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: there is no state."""
