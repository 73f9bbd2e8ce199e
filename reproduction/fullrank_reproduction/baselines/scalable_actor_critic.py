"""Tabular scalable actor-critic (SAC) for tasks on a lattice.

Qu, Wierman, Li: Scalable Reinforcement Learning of Localized Policies for Multi-Agent Networked
Systems, L4DC 2020, arXiv:1912.02906, Algorithm 1 with kappa = 1, as the baseline of [DARL1N],
Sec. VI. Agent i plays softmax(theta_i[s_i]), a table over its own states; its table Q_i is indexed
by the states and actions of itself and its neighbours N_i, x_i = (s_j, a_j for j in N_i). After
episode m, of T steps:

    Q_i[x_i(t)] += alpha_m (r_i(t) + gamma Q_i[x_i(t + 1)] - Q_i[x_i(t)])    for t = 0 .. T - 1
    theta_i += eta_m / M sum_t gamma^t sum_{j in N_i} Q_j[x_j(t)] grad log softmax(theta_i[s_i(t)])

with t = 0 .. T in the second, alpha_m = k^-0.4 and eta_m = k^-0.6, where k = 1 + m mod 10, and
1 + m modulo half of all episodes in the last tenth of them.

Differs from the sources in:

- Tables of Q persist across episodes, as in the code of [DARL1N]; [Qu20] begins each with zeros.
- The policy's gradient is taken at the policy that played, as in [Qu20]; the code moves it within
  the sum, and moves it from logits (2, 0, 0, 0, 0) where it had played by (0, 0, 0, 0, 0).
- Every copy of the environment has a learner of its own, with the same bits as on its own.
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive, stream
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.lattice.environment import LatticeEnvironment, seen
from fullrank.training.evaluation import Act


class SparseTable:
    """A table that stores only the keys that were looked up.

    Attributes:
        values: One value for each key, at an index that never changes.
    """

    def __init__(self) -> None:
        self.values: NDArray[np.float64] = np.zeros(1)
        self._place: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Number of keys stored."""
        return len(self._place)

    def places(self, keys: NDArray[np.int32]) -> IntArray:
        """Indices of the values of keys; unknown keys are added.

        Args:
            keys: Tuples of k numbers, shape (..., k).

        Returns:
            Indices into ``values``, shape (...).
        """
        data, width = keys.tobytes(), keys.itemsize * keys.shape[-1]
        place = self._place
        places = [
            place.setdefault(data[start : start + width], len(place))
            for start in range(0, len(data), width)
        ]
        if len(place) > len(self.values):
            self.values = np.concatenate([self.values, np.zeros(2 * len(place))])
        return np.array(places).reshape(keys.shape[:-1])


RESTART = 10
"""Episodes after which the step sizes restart."""
MOST_BITS = 16
"""Most bits an agent may hold: its policy has a row for each of the 2^z states."""


class Episode(NamedTuple):
    """One episode of E copies of M agents, including the final state and an action in it."""

    state: IntArray
    """Each agent's bits as a number, shape (T + 1, E, M)."""
    chances: Array
    """Probabilities of the A actions in each state, shape (T + 1, E, M, A)."""
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
        table: Q of all agents of all copies, keyed by owner, then x_i.

    Raises:
        ConfigError: Agents hold too many bits for a table of their states.
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
        if bits > MOST_BITS:
            raise ConfigError(
                f"a tabular policy has a row for each of 2^{bits} states of an agent; let agents "
                f"hold at most {MOST_BITS} bits"
            )
        self._environment, self._seed = environment, seed
        self._episodes, self._discount = episodes, discount
        self._actions = environment.agents[0].action.size
        self._copy, self._agent = np.ogrid[:copies, :agents]
        self._digits = 2 ** np.arange(bits)
        self.logits: Array = np.zeros((copies, agents, 2**bits, self._actions))
        self.table = SparseTable()

    def train(self) -> Iterator[Array]:
        """Play and learn.

        Yields:
            The return of each episode in each copy, undiscounted, summed over agents, shape (E,).
        """
        for number in range(self._episodes):
            episode = self._play(number)
            self._learn(episode, step=step_count(number, self._episodes))
            yield episode.reward.sum(axis=(0, 2))

    def policy(self, *, seed: int) -> Act:
        """The policy learnt so far; each copy is played by its own learner.

        The draws of the n-th call are keyed by (seed, "tabular_action", n).
        """
        calls = count()

        def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
            generator = stream(seed, "tabular_action", next(calls))
            chances = self._chances(self._state(observation))
            return self._action(sampled(chances, generator.random(chances.shape[:2])))

        return act

    def _play(self, number: int) -> Episode:
        copies = range(self._environment.copies)
        seeds = [derive(self._seed, "episode", number, copy) for copy in copies]
        draws = [stream(self._seed, "tabular_action", number, copy) for copy in copies]
        observation, ended = self._environment.reset(seeds, copies), False
        states, chances, choices = list[IntArray](), list[Array](), list[IntArray]()
        rewards = list[Array]()
        while True:
            states.append(self._state(observation))
            chances.append(self._chances(states[-1]))
            uniform = np.stack([draw.random(self.logits.shape[1]) for draw in draws])
            choices.append(sampled(chances[-1], uniform))
            if ended:
                break
            step = self._environment.step(self._action(choices[-1]))
            rewards.append(step.reward)
            observation, ended = step.observation, bool(step.ended.all())
        return Episode(
            state=np.stack(states),
            chances=np.stack(chances),
            choice=np.stack(choices),
            reward=np.stack(rewards),
        )

    def _learn(self, episode: Episode, *, step: int) -> None:
        places = self.table.places(self._keys(episode))
        learn_values(
            self.table.values,
            places,
            episode.reward,
            rate=step**-0.4,
            discount=self._discount,
        )
        value = self.table.values[places]
        around = seen(value.reshape(-1, *value.shape[2:]), self._environment.hood, absent=0.0)
        discounts = self._discount ** np.arange(len(value))[:, None, None]
        weight = discounts / value.shape[2] * around.sum(axis=-1).reshape(value.shape)
        self.logits += step**-0.6 * policy_gradient(self.logits.shape, episode, weight)

    def _keys(self, episode: Episode) -> NDArray[np.int32]:
        """Keys of the table, the owner followed by x_i, shape (T + 1, E, M, 1 + n)."""
        shape = episode.state.shape
        pair = episode.state * self._actions + episode.choice
        hood = self._environment.hood
        around = seen(pair.reshape(-1, shape[2]), hood, absent=-1).reshape(*shape, -1)
        owner = np.broadcast_to(self._copy * shape[2] + self._agent, shape)
        return np.concatenate([owner[..., None], around], axis=-1).astype(np.int32)

    def _state(self, observation: FloatArray) -> IntArray:
        """Own bits as a number, shape (E, M); every observation begins with them."""
        own = observation.reshape(*self.logits.shape[:2], -1)[..., : len(self._digits)]
        return (own @ self._digits).astype(np.int64)

    def _chances(self, state: IntArray) -> Array:
        """Action probabilities in the given states, shape (E, M, A)."""
        logits = self.logits[self._copy, self._agent, state]
        scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
        chances: Array = scores / scores.sum(axis=-1, keepdims=True)
        return chances

    def _action(self, choice: IntArray) -> FloatArray:
        """Packed one-hot actions, shape (E, M A)."""
        one_hot = np.eye(self._actions, dtype=np.float32)[choice]
        return one_hot.reshape(len(choice), -1)


def step_count(episode: int, episodes: int) -> int:
    """k, the base of the step sizes; it restarts, except in the last tenth of training."""
    restart = RESTART if episode <= 0.9 * episodes else max(episodes // 2, RESTART)
    return 1 + episode % restart


def sampled(chances: Array, uniform: Array) -> IntArray:
    """Sample actions by inverting the distribution over the last axis of ``chances``."""
    choice: IntArray = (chances.cumsum(axis=-1)[..., :-1] <= uniform[..., None]).sum(axis=-1)
    return choice


def learn_values(
    values: Array, places: IntArray, reward: Array, *, rate: float, discount: float
) -> None:
    """Update values by TD(0) along an episode, in place.

    Args:
        values: All tables.
        places: Indices of x_i(t) into ``values``, shape (T + 1, E, M), distinct for each t.
        reward: Rewards, shape (T, E, M).
        rate: The step size alpha.
        discount: The discount gamma.
    """
    for now, following, earned in zip(places[:-1], places[1:], reward, strict=True):
        values[now] += rate * (earned + discount * values[following] - values[now])


def policy_gradient(shape: tuple[int, ...], episode: Episode, weight: Array) -> Array:
    """Gradient of the sum over t, e and i of weight log softmax(theta_i[s_i(t)])[a_i(t)].

    Args:
        shape: Shape of theta, (E, M, 2^z, A).
        episode: The episode played.
        weight: Weights, shape (T + 1, E, M).
    """
    taken = np.eye(shape[-1])[episode.choice]
    gradient = np.zeros(shape)
    copy, agent = np.ogrid[: shape[0], : shape[1]]
    score = weight[..., None] * (taken - episode.chances)
    np.add.at(gradient, (copy, agent, episode.state), score)
    return gradient
