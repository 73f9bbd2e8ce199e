"""Evaluation of policies on whole episodes without exploration, a random policy, and its rewards.

The rewards of whole episodes are standardised by the scale that random play finds.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np

from fullrank.algorithms.roles import Player
from fullrank.common.errors import EnvironmentFailed, NoEnd
from fullrank.common.seeding import derive, stream
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Continuous, Environment
from fullrank.environments.capabilities import Contested, horizon_of
from fullrank.training.episodes import Episodes, longest_of, team_returns, team_reward


class Act(Protocol):
    """A policy of all agents."""

    def __call__(
        self, observation: FloatArray, available: BoolArray | None = None, /
    ) -> FloatArray:
        """Return joint actions, shape (E, sum of action sizes).

        Args:
            observation: Joint observations, shape (E, sum of observation sizes).
            available: Permitted discrete actions, of the shape of the actions; None: all are.
        """


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

    def __call__(
        self, observation: FloatArray, available: BoolArray | None = None, /
    ) -> FloatArray:
        """Return greedy joint actions."""
        action, self._memory = self._actor.act_greedily(
            observation, self._memory, available=available
        )
        return action


class EpisodePlayer:
    """Plays episodes in the copies of an environment, all agents of which one policy controls.

    Args:
        environment: Environment with any number of copies.
        act: Policy; the memory of a ``Greedy`` one is cleared where episodes begin.
    """

    def __init__(self, environment: Environment, act: Act) -> None:
        self.episodes = Episodes(environment)
        self._act, self._copies = act, environment.copies

    def begin(self, copies: IntArray, seeds: Sequence[int]) -> None:
        """Reset the given copies, which start new episodes."""
        if isinstance(self._act, Greedy):
            self._act.begin(copies, self._copies)
        self.episodes.begin(copies, seeds)

    def advance(self) -> None:
        """Step all copies."""
        episodes = self.episodes
        episodes.advance(self._act(episodes.observation, episodes.available()))


class Evaluation(NamedTuple):
    """Undiscounted returns, lengths and wins of whole episodes, by ascending episode."""

    returns: Array
    """Returns summed over all agents, shape (episodes,)."""
    side_returns: dict[str, Array]
    """Returns summed over the agents of each side, shape (episodes,)."""
    lengths: IntArray
    """Steps of each episode, shape (episodes,)."""
    won: BoolArray | None = None
    """True for episodes that were won, shape (episodes,); None if the environment has no wins."""


def evaluate(
    environment: Environment,
    act: Act,
    episodes: int,
    seed: int,
    *,
    told: Callable[[int], None] = lambda played: None,
) -> Evaluation:
    """Run whole episodes; episode e starts from the seed derived from (seed, "evaluation", e).

    Copies take the next episode as they become free, so that the result does not depend on their
    number if ``act`` treats all copies alike.

    Args:
        environment: Environment with any number of copies, all of which are reset.
        act: Policy, for example ``Greedy(algorithm.actor)`` or ``random_actions(...)``.
        episodes: Number of episodes, at least 1.
        seed: Fixes the initial states.
        told: Takes the number of episodes that have ended, after every step.

    Raises:
        NoEnd: An episode has not ended after ``longest_of(environment)`` steps.
    """
    longest = longest_of(environment)
    player = EpisodePlayer(environment, act)
    running = player.episodes
    episode_of = np.zeros(environment.copies, dtype=np.int64)
    steps = np.zeros(environment.copies, dtype=np.int64)
    lengths = np.zeros(episodes, dtype=np.int64)
    by_agent = np.zeros((episodes, len(environment.agents)))
    won = np.zeros(episodes, dtype=bool)
    begun, open_episodes = 0, episodes
    while open_episodes:
        waiting = running.waiting()
        episode_of[waiting] = np.arange(begun, begun + waiting.size)  # surplus ones do not count
        if waiting.size:
            seeds = [derive(seed, "evaluation", number) for number in episode_of[waiting].tolist()]
            player.begin(waiting, seeds)
            begun += waiting.size
            steps[waiting] = 0
        player.advance()
        steps += 1
        ended = episode_of[running.ended]
        counted = ended < episodes
        by_agent[ended[counted]] = running.earned[running.ended][counted]
        lengths[ended[counted]] = steps[running.ended][counted]
        won[ended[counted]] = running.won()[counted]
        open_episodes -= int(counted.sum())
        told(episodes - open_episodes)
        if ((steps >= longest) & ~running.ended & (episode_of < episodes)).any():
            raise NoEnd(
                f"{'greedy play' if isinstance(act, Greedy) else 'play'} does not end: an episode "
                f"has had {longest:,} steps; give the environment a time limit"
            )
    returns, sides = team_returns(environment, by_agent)
    contested = isinstance(environment, Contested)
    return Evaluation(returns, sides, lengths, won if contested else None)


def evaluate_and_close(
    environment: Environment,
    act: Act,
    episodes: int,
    seed: int,
    *,
    told: Callable[[int], None] = lambda played: None,
) -> Evaluation:
    """Run ``evaluate``, then close the environment."""
    with closing(environment):
        return evaluate(environment, act, episodes, seed, told=told)


def random_actions(agents: Sequence[AgentSpec], *, seed: int) -> Act:
    """Return the random policy: uniform over available one-hot vectors, or uniform in the range.

    The draws of the n-th call are keyed by (seed, "random_action", n).
    """
    low, high, offsets, choices = _action_tables(agents)
    calls = count()

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        generator = stream(seed, "random_action", next(calls))
        copies = len(observation)
        action = generator.uniform(low, high, size=(copies, len(low))).astype(np.float32)
        masks = _masks(available, offsets, choices)
        counts = np.stack([mask.sum(axis=1) for mask in masks], axis=1) if masks else choices
        picked = generator.integers(0, counts, size=(copies, len(choices)))
        for part, mask in enumerate(masks):  # from the index among available actions
            picked[:, part] = (mask.cumsum(axis=1) <= picked[:, part, None]).sum(axis=1)
        np.put_along_axis(action, offsets + picked, 1.0, axis=1)
        return action

    return act


def _masks(available: BoolArray | None, offsets: IntArray, choices: IntArray) -> list[BoolArray]:
    """Return the available actions of each one-hot part; none where all are available."""
    if available is None:
        return []
    return [available[:, start : start + n] for start, n in zip(offsets, choices, strict=True)]


def _action_tables(agents: Sequence[AgentSpec]) -> tuple[Array, Array, IntArray, IntArray]:
    """Return each entry's bounds (0 in one-hot parts), and offset and size of each one-hot part."""
    low, high, offsets, choices = list[float](), list[float](), list[int](), list[int]()
    for agent in agents:
        if isinstance(agent.action, Continuous):
            low += agent.action.low
            high += agent.action.high
        for choice in agent.action.choices:
            offsets.append(len(low))
            choices.append(choice)
            low += [0.0] * choice
            high += [0.0] * choice
    return (
        np.array(low),
        np.array(high),
        np.array(offsets, dtype=np.int64),
        np.array(choices, dtype=np.int64),
    )


SCALE_COPIES = 64
"""Number of episodes of random play by which the rewards of whole episodes are standardised."""


class RewardScale(NamedTuple):
    """Mean and standard deviation by which rewards are standardised in replay."""

    mean: float = 0.0
    deviation: float = 1.0
    own_mean: tuple[float, ...] = (0.0,)
    """Mean of each agent's own reward, or of all."""
    own_deviation: tuple[float, ...] = (1.0,)

    def own(self, reward: Array) -> Array:
        """Return the agents' own rewards, shape (copies, n), standardised one by one."""
        standardised: Array = (reward - np.array(self.own_mean)) / np.array(self.own_deviation)
        return standardised


AS_PAID = RewardScale()
"""The scale that leaves rewards as they are."""


def reward_scale(
    make_environment: Callable[[int], Environment], *, horizon: int, seed: int
) -> RewardScale:
    """Return the scale of random play; the best policies are the same under every scale."""
    if not horizon:
        return AS_PAID
    with closing(make_environment(SCALE_COPIES)) as environment:
        return random_reward_scale(environment, seed=derive(seed, "reward_scale"))


def random_reward_scale(environment: Environment, *, seed: int) -> RewardScale:
    """Return the scale that gives the team's rewards in random play mean 0 and deviation 1.

    Every copy plays ``horizon_of(environment)`` steps; the result depends on the environment, its
    number of copies and the seed alone. Own rewards of an agent that leaves before the horizon are
    scaled and not shifted: a shift would pay it for leaving, or for staying.

    Args:
        environment: Environment whose episodes all have the same length; all copies are reset.
        seed: Fixes the initial states and the actions.

    Raises:
        EnvironmentFailed: An episode has another number of steps.
    """
    episodes, act = Episodes(environment), random_actions(environment.agents, seed=seed)
    copies, horizon = episodes.waiting(), horizon_of(environment)
    episodes.begin(copies, [derive(seed, "episode", copy) for copy in copies.tolist()])
    rewards, own, leaves = [], [], np.zeros(len(environment.agents), bool)
    for step in range(1, horizon + 1):
        outcome = episodes.advance(act(episodes.observation, episodes.available()))
        if (outcome.ended != (step == horizon)).any():
            length = f"ends with step {step}" if step < horizon else "goes on after it"
            raise EnvironmentFailed(
                f"the environment's horizon is {horizon}, and an episode {length}; leave the "
                "attribute horizon out, or let every episode have as many steps"
            )
        rewards.append(team_reward(environment, outcome.reward))
        own.append(outcome.reward)
        if step < horizon:
            leaves |= ~outcome.alive.all(axis=0)
    mean, deviation = float(np.mean(rewards)), float(np.std(rewards))
    means, deviations = np.mean(own, axis=(0, 1)), np.std(own, axis=(0, 1))
    means[leaves], deviations[deviations == 0.0] = 0.0, 1.0
    return RewardScale(mean, deviation or 1.0, (*means.tolist(),), (*deviations.tolist(),))
