"""Evaluation of policies on whole episodes without exploration, and a random policy."""

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
"""Maps joint observations (E, sum of observation sizes) to actions (E, sum of action sizes)."""


class Greedy:
    """An actor without exploration, as an ``Act`` that carries its memory.

    Args:
        actor: Selects the actions.
    """

    def __init__(self, actor: Player) -> None:
        self._actor, self._memory = actor, actor.memory(0)

    def begin(self, copies: IntArray, total: int) -> None:
        """Clear the memory of the copies, out of ``total``, whose episodes start."""
        if self._memory and len(self._memory[0]) != total:
            self._memory = self._actor.memory(total)
        for array in self._memory:
            array[copies] = 0.0

    def __call__(self, observation: FloatArray) -> FloatArray:
        """Return greedy joint actions."""
        action, self._memory = self._actor.act_greedily(observation, self._memory)
        return action


class Evaluation(NamedTuple):
    """Undiscounted returns of whole episodes, by ascending episode."""

    returns: Array
    """Returns summed over all agents, shape (episodes,)."""
    side_returns: dict[str, Array]
    """Returns summed over the agents of each side, shape (episodes,)."""


def evaluate(environment: Environment, act: Act, episodes: int, seed: int) -> Evaluation:
    """Run whole episodes; episode e starts from the seed derived from (seed, "evaluation", e).

    Copies take the next episode as they become free, so that the result does not depend on their
    number if ``act`` treats all copies alike.

    Args:
        environment: Environment with any number of copies, all of which are reset.
        act: Policy, for example ``Greedy(algorithm.actor)`` or ``random_actions(...)``.
        episodes: Number of episodes, at least 1.
        seed: Fixes the initial states.
    """
    running = Episodes(environment)
    episode_of = np.zeros(environment.copies, dtype=np.int64)
    by_agent = np.zeros((episodes, len(environment.agents)))
    begun, open_episodes = 0, episodes
    while open_episodes:
        waiting = running.waiting()
        episode_of[waiting] = np.arange(begun, begun + waiting.size)  # surplus ones do not count
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
    """Run ``evaluate``, then close the environment."""
    with closing(environment):
        return evaluate(environment, act, episodes, seed)


def random_actions(agents: Sequence[AgentSpec], *, seed: int) -> Act:
    """Return the random policy: uniform over one-hot vectors, or uniform in the range.

    The draws of the n-th call are keyed by (seed, "random_action", n).
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
    """Return each entry's bounds (0 in one-hot parts), and offset and size of each one-hot part."""
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
    """Substitute for ``Rollout`` where learners collect: episode returns without transitions.

    Args:
        environment: Environment; an evaluation runs one episode in each copy.
        actor: Selects actions without exploration.
        layout: Layout of a transition.
        seed: The run's seed; the evaluation of iteration k is keyed by (seed, "evaluations", k).
        every: Number of iterations between evaluations.
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
        """Run the iteration's evaluation, if due, on whole episodes; ``steps`` is ignored."""
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
        """Return no arrays: evaluations are independent of one another."""
        return {}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: evaluations have no state."""
