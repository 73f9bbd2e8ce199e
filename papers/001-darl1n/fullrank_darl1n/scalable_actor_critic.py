"""Tabular scalable actor-critic (SAC) on a lattice, the baseline of [DARL1N] in Fig. 5.

Qu, Wierman, Li: Scalable Reinforcement Learning of Localized Policies for Multi-Agent Networked
Systems, L4DC 2020, arXiv:1912.02906, Algorithm 1 with kappa = 1. Agent i plays
softmax(theta_i[s_i]), a table over its own states; its table Q_i is indexed by the states and
actions of itself and its neighbours N_i, x_i = (s_j, a_j for j in N_i). After episode m, of T
steps:

    Q_i[x_i(t)] += alpha_m (r_i(t) + gamma Q_i[x_i(t + 1)] - Q_i[x_i(t)])    for t = 0 .. T - 1
    theta_i += eta_m / M sum_t gamma^t sum_{j in N_i} Q_j[x_j(t)] grad log softmax(theta_i[s_i(t)])

with t = 0 .. T in the second, alpha_m = k^-0.4 and eta_m = k^-0.6, where k = 1 + m mod 10, and
1 + m modulo half of all episodes in the last tenth of them.

Differs from the sources: tables of Q persist across episodes, as in the code of [DARL1N], where
[Qu20] begins each with zeros; the gradient is taken at the policy that played, as in [Qu20], where
that code moves it within the sum.
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fullrank.common.seeding import derive, stream
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.lattice.environment import LatticeEnvironment, seen
from fullrank.training.evaluation import Act

Keys = NDArray[np.uint64]

RESTART = 10
"""Episodes after which the step sizes restart."""


class Values:
    """The tables of all agents as one hash table of 64-bit keys, with open addressing.

    Of n keys two share a value with a chance of n^2 / 2^65: 3e-5 for 35 million.

    Attributes:
        values: Values by place, zero before the first change.
    """

    def __init__(self) -> None:
        self.values: Array = np.zeros(2**16)
        self._keys: Keys = np.zeros(2**16, np.uint64)
        self._held = 0

    def places(self, keys: Keys) -> IntArray:
        """Places of keys in ``values``, shape as the keys'; the next call may move them."""
        if 4 * (self._held + keys.size) > 3 * len(self._keys):
            held = np.flatnonzero(self._keys)
            old, values = self._keys[held], self.values[held]
            size = 2 * len(self._keys)
            self._keys, self.values, self._held = np.zeros(size, np.uint64), np.zeros(size), 0
            self.values[self._found(old)] = values
        return self._found(keys.ravel()).reshape(keys.shape)

    def _found(self, keys: Keys) -> IntArray:
        """Linear probing of all keys at once: one of those that meet at a free place gets it."""
        last = len(self._keys) - 1
        place = (keys >> np.uint64(32)).astype(np.int64) & last
        left = np.arange(len(keys))
        while left.size:
            free = left[self._keys[place[left]] == 0]
            self._keys[place[free]] = keys[free]
            self._held += len(free)
            left = left[self._keys[place[left]] != keys[left]]
            place[left] = (place[left] + 1) & last
        return place


class Episode(NamedTuple):
    """One episode of E copies of M agents, including the final state and an action in it."""

    state: IntArray
    """Each agent's bits as a number, shape (T + 1, E, M)."""
    choice: IntArray
    """Chosen actions, shape (T + 1, E, M)."""
    reward: Array
    """Rewards, shape (T, E, M)."""


class ScalableActorCritic:
    """E learners of M agents each, one for each copy of an environment.

    Args:
        environment: The environment, which is stepped; all agents have the same number of actions.
        seed: Seed of initial states and actions.
        episodes: Number of episodes that ``train`` plays.
        discount: The discount gamma.

    Attributes:
        logits: theta, shape (E, M, 2^z, A).
    """

    def __init__(
        self,
        environment: LatticeEnvironment,
        *,
        seed: int,
        episodes: int,
        discount: float = 0.95,
    ) -> None:
        copies, agents, bits = environment.state.shape
        self._environment, self._seed = environment, seed
        self._episodes, self._discount = episodes, discount
        actions = environment.agents[0].action.size
        self._one_hot = np.eye(actions, dtype=np.float32)
        self._copy, self._agent = np.ogrid[:copies, :agents]
        self._digits = 2.0 ** np.arange(bits, dtype=np.float32)
        self.logits: Array = np.zeros((copies, agents, 2**bits, actions))
        self._bounds = bounds(self.logits)
        self._table = Values()
        salts = stream(0, "tabular_keys")
        self._owner, self._salts = (
            salts.integers(1, 2**64 - 1, shape, np.uint64, endpoint=True)
            for shape in ((copies, agents), environment.hood.shape[1:])
        )

    def train(self) -> Iterator[Array]:
        """Play and learn.

        Yields:
            The return of each episode in each copy, undiscounted, summed over agents, shape (E,).
        """
        for number in range(self._episodes):
            episode = self._play(number)
            self._learn(episode, step=step_count(number, self._episodes))
            yield episode.reward.sum(axis=(0, 2))

    def policy(self, copy: int, *, seed: int) -> Act:
        """The policy that a copy has learnt so far; draws are keyed by seed and call."""
        calls = count()

        def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
            state = self._state(observation)
            uniform = stream(seed, "tabular_action", next(calls)).random(state.shape)
            return self._action(self._chosen(state, uniform, copy))

        return act

    def _play(self, number: int) -> Episode:
        copies, horizon = range(self._environment.copies), self._environment.horizon
        seeds = [derive(self._seed, "episode", number, copy) for copy in copies]
        observation = self._environment.reset(seeds, copies)
        shape = (horizon + 1, *self.logits.shape[:2])
        uniform = stream(self._seed, "tabular_action", number).random(shape)
        states, choices, rewards = list[IntArray](), list[IntArray](), list[Array]()
        for time in range(horizon + 1):
            states.append(self._state(observation))
            choices.append(self._chosen(states[-1], uniform[time], self._copy))
            if time < horizon:
                step = self._environment.step(self._action(choices[-1]))
                rewards.append(step.reward)
                observation = step.observation
        return Episode(np.stack(states), np.stack(choices), np.stack(rewards))

    def _learn(self, episode: Episode, *, step: int) -> None:
        places, values = self._table.places(self.keys(episode)), self._table.values
        for now, after, earned in zip(places[:-1], places[1:], episode.reward, strict=True):
            values[now] += step**-0.4 * (earned + self._discount * values[after] - values[now])
        around = self._seen(values[places], absent=0.0).sum(axis=-1)
        weight = step**-0.6 / around.shape[2] * self._discount ** np.arange(len(around))
        visited = self._copy, self._agent, episode.state
        taken = self._one_hot[episode.choice] - softmax(self.logits[visited], axis=-1)
        scores = (weight[:, None, None] * around)[..., None] * taken
        for state, score in zip(episode.state, scores, strict=True):
            self.logits[self._copy, self._agent, state] += score
        self._bounds[visited] = bounds(self.logits[visited])

    def _chosen(self, state: IntArray, uniform: Array, copy: IntArray | int) -> IntArray:
        """Actions drawn by the policies of some copies, shape (E, M)."""
        below = self._bounds[copy, self._agent, state] <= uniform[..., None]
        choice: IntArray = below.sum(axis=-1)
        return choice

    def keys(self, episode: Episode) -> Keys:
        """Keys of the tables, hashes of the owner and x_i, shape (T + 1, E, M)."""
        pair = episode.state * len(self._one_hot) + episode.choice + 1
        around = self._seen(pair.astype(np.uint64), absent=0)
        keys: Keys = self._owner + (around * self._salts).sum(axis=-1, dtype=np.uint64)
        return keys

    def _seen(self, of: NDArray[np.generic], *, absent: object) -> NDArray[np.generic]:
        """Entries of an agent and its neighbours, shape (T + 1, E, M, n)."""
        around = seen(of.reshape(-1, of.shape[2]), self._environment.hood, absent=absent)
        return around.reshape(*of.shape, -1)

    def _state(self, observation: FloatArray) -> IntArray:
        """Own bits as a number, shape (E, M); every observation begins with them."""
        own = observation.reshape(len(observation), self.logits.shape[1], -1)
        own = own[..., : len(self._digits)]
        return (own @ self._digits).astype(np.int64)

    def _action(self, choice: IntArray) -> FloatArray:
        """Packed one-hot actions, shape (E, M A)."""
        action: FloatArray = self._one_hot[choice].reshape(len(choice), -1)
        return action


def step_count(episode: int, episodes: int) -> int:
    """k, the base of the step sizes; it restarts, except in the last tenth of training."""
    restart = RESTART if episode <= 0.9 * episodes else max(episodes // 2, RESTART)
    return 1 + episode % restart


def bounds(logits: Array) -> Array:
    """Bounds in [0, 1] between the A actions of softmax policies, shape (..., A - 1)."""
    between: Array = softmax(logits, axis=-1).cumsum(axis=-1)[..., :-1]
    return between
