"""Episodes of teams of values: what losses read of them, their statistics, and the actor.

The episodes of a unit are padded to the longest. The actor is epsilon-greedy by a recurrent network
of action values.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.roles import Convolution, ImageLayers, Memory, RecurrentLayers
from fullrank.algorithms.updates import Entries
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.networks.fused import kernels
from fullrank.networks.images import BRIGHTEST, ImageEncoder, Seeing
from fullrank.networks.value_networks import FeedForwardAgent, GroupedAgents, RecurrentAgent
from fullrank.replay.episodes import EpisodeLayout

if TYPE_CHECKING:
    from fullrank.algorithms.action_values import ActionValues


SCALE = 2.0**-6
"""Factor of updates: entries of a unit's gradient up to 32 keep within the bound of encoding."""

ENTRIES = Entries(("loss", "td_error_abs", "q_taken_mean", "target_mean"), marking="td_error_abs")
"""The statistics that PyMARL's ``QLearner`` logs, under its names: the loss; the mean magnitude of
the temporal differences; the means of Q_t and of G_t, divided by the number of agents."""


class Now(NamedTuple):
    """Observations and last actions of agents that play."""

    observation: Tensor
    """Shape (copies, n, O)."""
    last_action: Tensor
    """As one-hot, zero at the start, shape (copies, n, A)."""


class Trajectories:
    """K episodes of up to L steps; padding is zero and not valid.

    Agents with smaller observations or fewer actions than others are padded with zeros and actions
    that are not available.

    Args:
        rows: Packed steps and masks, as of ``padded``, shape (L + 1, K, row_size + 1).
        layout: Layout of a row.
        steps: T, number of steps of all episodes of the sample, which may be a tensor.

    Attributes:
        observation: Observation of each agent, shape (L + 1, K, n, O).
        state: Global state, shape (L + 1, K, S).
        available: Mask of the actions that may be chosen, shape (L + 1, K, n, A).
        action: Index of each agent's action, shape (L, K, n); -1 where it could not act.
        reward: Reward of the team, shape (L, K).
        continues: 0 where the step reached a terminal state, else 1, shape (L, K).
        valid: 1 for steps of an episode, 0 for padding, shape (L, K).
        derived: Derived columns by name, each of shape (L, K, entries).
        steps: T.
    """

    def __init__(self, rows: Tensor, layout: EpisodeLayout, *, steps: float | Tensor) -> None:
        played = rows[:-1]
        self.observation = by_agent(rows[..., layout.observation], layout.observation_sizes)
        self.state = rows[..., layout.state].contiguous()
        self.available = by_agent(rows[..., layout.available], layout.action_sizes) > 0
        self.action = played[..., layout.action].to(torch.int64)
        self.reward = played[..., layout.reward].contiguous()
        self.continues = 1.0 - played[..., layout.terminated]
        self.valid = played[..., -1].contiguous()
        self.derived = {name: played[..., own].contiguous() for name, own in layout.columns.items()}
        self.steps = steps

    @classmethod
    def of(
        cls,
        episodes: Sequence[FloatArray],
        layout: EpisodeLayout,
        *,
        device: torch.device,
        steps: int | None = None,
    ) -> "Trajectories":
        """Load episodes; see ``padded``. T is by default the number of their steps."""
        rows = padded(episodes, layout, steps=max(map(len, episodes)) - 1)
        count = sum(len(episode) - 1 for episode in episodes) if steps is None else steps
        return cls(rows.to(device), layout, steps=count)

    @property
    def goes_on(self) -> Tensor:
        """True where another step of the episode follows, shape (L, K)."""
        return pad(self.valid, (0, 0, 0, 1))[1:] > 0

    @property
    def last_action(self) -> Tensor:
        """Action before each step as one-hot, zero at the start, shape (L + 1, K, n, A)."""
        taken = self.observation.new_zeros(self.available.shape)
        acted = (self.action >= 0)[..., None].to(taken.dtype)
        taken[1:].scatter_(3, self.action.clamp_min(0)[..., None], acted)
        return taken


def padded(episodes: Sequence[FloatArray], layout: EpisodeLayout, *, steps: int) -> Tensor:
    """Lay episodes side by side.

    Args:
        episodes: Packed steps of each, shapes (<= L + 1, row_size or more) float32; no row: an
            episode of padding.
        layout: Layout of a row.
        steps: L.

    Returns:
        In host memory, shape (L + 1, K, row_size + 1); the last column is 1 for steps of an episode
        and 0 after them.
    """
    rows = np.zeros((steps + 1, len(episodes), layout.row_size + 1), np.float32)
    for number, episode in enumerate(episodes):
        rows[: len(episode), number, :-1] = episode[:, : layout.row_size]
        rows[: max(len(episode) - 1, 0), number, -1] = 1.0
    return torch.from_numpy(rows)


def by_agent(joint: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Split joint parts by agent, padded to the widest: shape (..., n, max of sizes)."""
    if len(set(sizes)) == 1:
        return torch.unflatten(joint, -1, (len(sizes), sizes[0]))
    parts, widest = torch.split(joint, [*sizes], -1), max(sizes)
    return torch.stack([pad(part, (0, widest - part.shape[-1])) for part in parts], -2)


def chosen_values(values: Tensor, action: Tensor) -> Tensor:
    """Return the values of the chosen actions, 0 where an agent could not act, (..., n)."""
    chosen = values.gather(-1, action.clamp_min(0)[..., None])[..., 0]
    return chosen * (action >= 0)


def best_actions(values: Tensor, available: Tensor) -> Tensor:
    """Return the available actions that ``values`` rank first, -1 without any, (..., n)."""
    best = values.masked_fill(~available, -torch.inf).argmax(-1)
    return best.masked_fill(~available.any(-1), -1)


def best_values(values: Tensor, judge: Tensor, available: Tensor) -> Tensor:
    """Return the values of the available actions that ``judge`` ranks first, 0 without any."""
    return chosen_values(values, best_actions(judge, available))


def shares_of(
    value: FloatArray, expected: FloatArray, valid: FloatArray, *, steps: int, agents: int
) -> Mapping[str, float]:
    """Return a unit's share of the statistics.

    Sums run over valid steps alone, so that padding changes no bit.

    Args:
        value: Q_t, shape (L, K, values).
        expected: G_t, of the same shape.
        valid: 1 for steps of an episode, 0 for padding, shape (L, K).
        steps: Number of steps of all episodes of the sample.
        agents: Number of agents.
    """
    chosen = valid > 0
    own, aim = (part[chosen].astype(np.float64) for part in (value, expected))
    with np.errstate(all="ignore"):  # values that are not finite are refused with the gradient
        error, count = aim - own, steps * own.shape[1]
        own_sum, aim_sum = own.sum() / agents, aim.sum() / agents
        sums = np.array([np.square(error).sum(), np.abs(error).sum(), own_sum, aim_sum]) / count
    return dict(zip(ENTRIES.names, sums.tolist(), strict=True))


def shares_by_unit(value: Tensor, expected: Tensor, batch: Trajectories, *, units: int) -> Tensor:
    """Return the shares of the statistics of many units on their device, in float64.

    Neighbours are added in pairs, then their sums, and so on: no bit depends on zeros at the end,
    and so on padding or company. The host adds up in another order.

    Args:
        value: Q_t, shape (L, units x K, values).
        expected: G_t, of the same shape.
        batch: The units' episodes.
        units: Number of units.

    Returns:
        Shape (units, statistics), in the order of ``ENTRIES``.
    """
    own, aim = value.double(), expected.double()
    error = aim - own
    terms = torch.stack([error.square(), error.abs(), own, aim], -1)
    terms.masked_fill_((batch.valid <= 0)[..., None, None], 0.0)
    by_unit = torch.unflatten(terms, 1, (units, -1)).movedim(1, -2)
    sums = by_unit.flatten(0, 2)  # (L x K x values, units, statistics)
    while len(sums) > 1:
        sums = pad(sums, (0, 0, 0, 0, 0, len(sums) % 2))
        sums = sums[::2] + sums[1::2]
    sums[0, :, 2:] /= batch.action.shape[2]
    return sums[0] / (batch.steps * value.shape[2])


class ValueActor:
    """Role ``agent`` as an ``Actor``; memory is the recurrent state and the last action.

    With an ``exploration_spread`` above 1 it is also the place of the episode's probability of a
    random action between epsilon and the largest, in (0, 1], or 0 before it is drawn.

    Args:
        learner: Inputs of the network, and the schedule of the exploration.
        nets: Networks with the current parameters.
        layout: Sizes of observations and actions.
        seed: Keys the exploration.
    """

    def __init__(
        self, learner: "ActionValues", nets: Networks, layout: EpisodeLayout, *, seed: int
    ) -> None:
        self._learner, self._network, self._layout = learner, nets.agent[0], layout
        self._seed, self._epsilon = seed, learner.exploration(0)
        self._device = next(self._network.parameters()).device
        every = torch.ones(1, sum(layout.action_sizes), dtype=torch.bool)
        self._exists: BoolArray = by_agent(every, layout.action_sizes).numpy()

    def anneal(self, env_steps: int) -> float:
        """Set and return epsilon for a collection before which ``env_steps`` steps were played."""
        self._epsilon = self._learner.exploration(env_steps)
        return self._epsilon

    def memory(self, copies: int) -> Memory:
        """Return zeros: recurrent state (E, n, hidden) and last action (E, n, A)."""
        agents, actions = self._layout.agents, max(self._layout.action_sizes)
        place = (np.zeros((copies, 1), np.float32),) if self._learner.exploration_spread > 1 else ()
        return (
            np.zeros((copies, agents, self._learner.hidden), np.float32),
            np.zeros((copies, agents, actions), np.float32),
            *place,
        )

    def act(
        self,
        observation: FloatArray,
        memory: Memory,
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, Memory]:
        """Return the best actions, or random available ones with probability epsilon.

        Draws are keyed by (seed, "act", iteration, step); see ``Actor.act``.
        """
        allowed = self._allowed(observation, available)
        if available is None:
            allowed = allowed & alive[..., None]
        values, state = self._values(observation, memory)
        generator = stream(self._seed, "act", iteration + 1, step)
        drawn = generator.random((2, *alive.shape))
        places = [
            np.where(place > 0, place, 1 - generator.random(place.shape, np.float32))
            for place in memory[2:]
        ]
        more = min(1.0, self._learner.exploration_spread * self._epsilon) - self._epsilon
        epsilon = self._epsilon + more * places[0] if places else self._epsilon
        choice = np.where(
            drawn[0] < epsilon, random_choice(allowed, drawn[1]), best(values, allowed)
        )
        action = one_hot(choice, allowed)
        return self._joint(action * alive[..., None]), (state, action, *places)

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        """Return the best available actions as one-hot."""
        allowed = self._allowed(observation, available)
        values, state = self._values(observation, memory)
        action = one_hot(best(values, allowed), allowed)
        return self._joint(action), (state, action, *memory[2:])

    def _allowed(self, observation: FloatArray, available: BoolArray | None) -> BoolArray:
        if available is None:
            return np.repeat(self._exists, len(observation), axis=0)
        offered: BoolArray = by_agent(torch.tensor(available), self._layout.action_sizes).numpy()
        return offered

    def _values(self, observation: FloatArray, memory: Memory) -> tuple[FloatArray, FloatArray]:
        """Compute the values of all actions, shape (E, n, A), and the new recurrent state."""
        state, last_action = memory[:2]
        copies, agents, _ = state.shape
        seen = torch.tensor(self._layout.packed(observation))
        observed = by_agent(seen, self._layout.observation_sizes)
        inputs = self._learner.inputs(Now(observed, torch.from_numpy(last_action)))
        with kernels.DEFAULT.active():
            values, after = self._network(
                inputs.flatten(0, 1)[None].to(self._device),
                torch.from_numpy(state.reshape(copies * agents, -1)).to(self._device),
            )
        return (
            values[0].cpu().numpy().reshape(copies, agents, -1),
            after.cpu().numpy().reshape(state.shape),
        )

    def _joint(self, action: FloatArray) -> FloatArray:
        """Pack actions by agent into joint actions, shape (E, sum of action sizes)."""
        sizes = self._layout.action_sizes
        return np.concatenate([action[:, agent, :size] for agent, size in enumerate(sizes)], axis=1)

    def policy(self, agent: int) -> RecurrentLayers:
        """Return the agent's part of its network; see ``Actor.policy``."""
        if not self._learner.plain_inputs:
            raise ConfigError(
                "policies with inputs of their own are not exported; use the checkpoint"
            )
        layout, network = self._layout, self._network
        if isinstance(network, GroupedAgents):
            network = network.of(agent)
        image, own = None, [*range(layout.observation_sizes[agent])]
        start = max(layout.observation_sizes)
        if isinstance(network, Seeing):
            image, start = image_layers(network.encoder), network.encoder.last.out_features
            own, network = [*range(start)], network.network
        assert isinstance(network, RecurrentAgent | FeedForwardAgent)
        if self._learner.last_action:
            own += range(start, start + layout.action_sizes[agent])
            start += max(layout.action_sizes)
        return own_layers(
            network,
            inputs=own,
            identity=start + agent if self._learner.identity else None,
            actions=layout.action_sizes[agent],
            last_action=self._learner.last_action,
            image=image,
        )


def image_layers(encoder: ImageEncoder) -> ImageLayers:
    """Return the layers of an encoder, whose first weights take bytes as they are."""
    convolutions = []
    for number, layer in enumerate(encoder.convolutions):
        assert isinstance(layer, nn.Conv2d)
        assert layer.bias is not None
        weight = layer.weight if number else layer.weight / BRIGHTEST
        kernel, bias = (part.detach().cpu().numpy() for part in (weight, layer.bias))
        convolutions.append(Convolution(kernel, bias, layer.stride[0]))
    last = _joined(encoder.last.weight, encoder.last.bias)
    return ImageLayers(image=encoder.image, convolutions=tuple(convolutions), last=last)


def own_layers(
    network: RecurrentAgent | FeedForwardAgent,
    *,
    inputs: list[int],
    identity: int | None,
    actions: int,
    last_action: bool,
    image: ImageLayers | None = None,
) -> RecurrentLayers:
    """Return one agent's part of a network of action values or of logits, as matrices.

    Args:
        network: A recurrent agent, or one without a recurrent state.
        inputs: Columns of the agent's own inputs.
        identity: Column of its identity, which becomes part of the bias; None: there is none.
        actions: Number of its actions.
        last_action: True if its last action is among the inputs.
        image: Layers whose features are its observation; None: it is no image.
    """
    first, middle, last = ([*part.parameters()] for part in network.children())
    weight, bias = first[0].data, first[1].data
    if identity is not None:
        bias = bias + weight[:, identity]
    recurrent = len(middle) > 2
    return RecurrentLayers(
        first=_joined(weight[:, inputs], bias),
        input_gates=_joined(*(middle[::2] if recurrent else middle)),
        state_gates=_joined(*middle[1::2]) if recurrent else None,
        last=_joined(last[0][:actions], last[1][:actions]),
        last_action=last_action,
        normalised=network.normalised,
        image=image,
    )


def _joined(weight: Tensor, bias: Tensor) -> FloatArray:
    """Return [W | b]."""
    matrix: FloatArray = torch.cat([weight, bias[:, None]], 1).detach().cpu().numpy()
    return matrix


def best(values: FloatArray, allowed: BoolArray) -> IntArray:
    """Return the first allowed action of highest value, shape (E, n)."""
    chosen: IntArray = np.where(allowed, values, -np.inf).argmax(axis=2)
    return chosen


def random_choice(allowed: BoolArray, uniform: NDArray[np.float64]) -> IntArray:
    """Choose an allowed action by a uniform number in [0, 1), shape (E, n)."""
    rank = (uniform * allowed.sum(axis=2)).astype(np.int64)
    chosen: IntArray = (np.cumsum(allowed, axis=2) > rank[..., None]).argmax(axis=2)
    return chosen


def one_hot(choice: IntArray, allowed: BoolArray) -> FloatArray:
    """Return choices as one-hot vectors, zero where nothing is allowed, shape (E, n, A)."""
    action = np.zeros(allowed.shape, np.float32)
    np.put_along_axis(action, choice[..., None], 1.0, axis=2)
    action *= allowed
    return action
