"""Coded MADDPG: the update of one agent, for many agents at once.

Lowe, Wu, Tamar, Harb, Abbeel, Mordatch: Multi-Agent Actor-Critic for Mixed Cooperative-Competitive
Environments, NeurIPS 2017, arXiv:1706.02275, as coded by [Wang21], Sec. III.

u_i = [gradient of the critic loss; gradient of the policy loss] with, over the minibatch,

    critic loss = mean (r_i + discount (1 - terminated_i) Q'_i(s', a') - Q_i(s, a))^2
    policy loss = -mean Q_i(s, a with a_i a sample of pi_i(o_i)) + penalty mean(logits^2)

and a'_k a sample of the target policy of agent k. Transitions in which agent i did not act count
for nothing; an agent that does not act next has a zero target action, as in stored transitions.

Differs from the paper in:

- u_i is a gradient, not the updated parameters; Adam and the targets live with the controller, so
  learners stay stateless and holders of the same unit agree to the bit.
- Both gradients are taken at the broadcast parameters; the authors' code takes the critic's step
  before the policy's gradient.
- Sides named in ``ddpg_sides`` learn by DDPG, as the adversaries in some runs of the authors: their
  critics see their own observation and action in place of (s, a), and nothing else differs.
- ``target_rate`` is the weight of the new parameters (0.01), as in the MADDPG paper; tau of
  [Wang21] is the weight of the old ones (0.99).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.base import register
from fullrank.algorithms.maddpg_dimensions import MADDPGDimensions, layout_of
from fullrank.environments.base import AgentSpec
from fullrank.errors import CheckpointUnusable, ConfigError
from fullrank.networks import kernels
from fullrank.networks.adam import Adam
from fullrank.networks.chunk import Chunk, Chunks
from fullrank.networks.cohort import make_cohorts
from fullrank.networks.heads import Head
from fullrank.networks.minibatch import Minibatch, Tile
from fullrank.networks.mlp import (
    Tape,
    aligned,
    backward,
    forward,
    hidden,
    upper,
    upper_gradients,
)
from fullrank.registry import nearest
from fullrank.seeding import stream
from fullrank.types import BoolArray, FloatArray, Unit
from fullrank.updates import snap

SNAP_ENTRIES = 2**16
"""Entries snapped at a time, which stay in cache."""


@register("maddpg")
@dataclass(frozen=True, slots=True, kw_only=True)
class MADDPGConfig:
    """Coded MADDPG with the hyperparameters of [Wang21]."""

    batch_size: int = 1024
    """B, transitions in one minibatch, the same one for all agents."""
    hidden: int = 64
    """Width of both hidden layers of policies and critics."""
    learning_rate: float = 0.01
    """Of Adam, for policies and critics."""
    discount: float = 0.95
    """gamma."""
    target_rate: float = 0.01
    """Weight of the new parameters in the targets (1 - tau in the notation of [Wang21])."""
    clip_norm: float = 0.5
    """L2 norm that each variable's gradient is clipped to."""
    logit_penalty: float = 1e-3
    """Weight of the mean square of the policy's outputs in its loss."""
    exploration_noise: float = 0.1
    """Continuous actions: standard deviation of the noise, as a share of half the range."""
    ddpg_sides: tuple[str, ...] = ()
    """Sides whose critics see only their own agent's observation and action."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.hidden < 1:
            raise ConfigError("algorithm.batch_size and algorithm.hidden must be at least 1")
        if self.clip_norm <= 0:
            raise ConfigError("algorithm.clip_norm must be above 0")

    def dimensions(self, agents: Sequence[AgentSpec]) -> "MADDPGDimensions":
        """Sizes of sections, updates and transitions."""
        return MADDPGDimensions(layout_of(agents), hidden=self.hidden, local=self.local(agents))

    def local(self, agents: Sequence[AgentSpec]) -> frozenset[Unit]:
        """The agents that learn by DDPG.

        Raises:
            ConfigError: Nobody plays for a side that is named.
        """
        sides = sorted({agent.side for agent in agents})
        for side in self.ddpg_sides:
            if side not in sides:
                raise ConfigError(
                    f"algorithm.ddpg_sides: nobody plays for {side!r}{nearest(side, sides)}"
                )
        return frozenset(i for i, agent in enumerate(agents) if agent.side in self.ddpg_sides)

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> "MADDPG":
        """Build policies, critics and targets for the agents."""
        return MADDPG(self, agents, seed=seed, device=_device(device))


class MADDPG(MADDPGDimensions):
    """Policies, critics, targets and moments of M agents; the contract is ``Algorithm``."""

    def __init__(
        self,
        config: MADDPGConfig,
        specs: Sequence[AgentSpec],
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        self._config, self._seed, self._device = config, seed, device
        self._layout = layout_of(specs)
        super().__init__(self._layout, hidden=config.hidden, local=config.local(specs))
        self._cohorts = make_cohorts(
            specs,
            self._layout,
            local=self._local,
            hidden=config.hidden,
            noise=config.exploration_noise,
            device=device,
        )
        for cohort in self._cohorts:
            cohort.initialise(seed)
        self._place = {
            agent: (cohort, row)
            for cohort in self._cohorts
            for row, agent in enumerate(cohort.agents)
        }
        self._adam = Adam(learning_rate=config.learning_rate, target_rate=config.target_rate)
        self._steps = 0
        self._kernel = kernels.choose(
            device, least_product=config.hidden * aligned(config.batch_size)
        )
        self._minibatch: Minibatch | None = None
        self._chunks = [Chunks(cohort, clip_norm=config.clip_norm) for cohort in self._cohorts]

    def view(self, section: int) -> FloatArray:
        """The section's parameters as a writable flat array on the CPU."""
        cohort, row = self._place[self.sections[section].unit]
        return cohort.view(row, self.sections[section].role)

    def written(self) -> None:
        """Refresh the device's copy."""
        for cohort in self._cohorts:
            cohort.push()

    def updates(
        self,
        batch: FloatArray,
        units: Sequence[Unit],
        *,
        iteration: int,
        proceed: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[Unit, FloatArray]]:
        """Compute u_i for each unit asked for; see ``Algorithm.updates``.

        One call at a time: a newer call takes over the buffers of an older one.
        """
        with self._kernel.active():
            data = self._load(batch)
            self._target_actions(self.asked(units), data, iteration, proceed)
        for cohort, chunks in zip(self._cohorts, self._chunks, strict=True):
            wanted = [row for row, agent in enumerate(cohort.agents) if agent in units]
            for rows in chunks.split(wanted, data.columns):
                with self._kernel.active():
                    chunk = chunks.take(rows, data.columns)
                    gradient = self._gradient(chunk, data, iteration, proceed)
                distinct = list(dict.fromkeys(chunk.agents))
                for agent, row in zip(distinct, gradient.cpu().numpy(), strict=False):
                    yield agent, _snapped(row[: cohort.size])

    def _load(self, batch: FloatArray) -> Minibatch:
        if self._minibatch is None or self._minibatch.size != len(batch):
            self._minibatch = Minibatch(
                self._layout, size=len(batch), hidden=self._config.hidden, device=self._device
            )
        self._minibatch.load(batch)
        return self._minibatch

    def _noise(self, chunk: Chunk, data: Minibatch, purpose: str, iteration: int) -> Tensor:
        """What each agent's actions need of chance, keyed by (purpose, iteration, agent)."""
        shape = (chunk.cohort.policy.outputs, data.size)
        noise = torch.empty(len(chunk.agents), shape[0], data.columns * len(data.tiles))
        noise[:, :, data.size :] = 0.0
        for agent, out in zip(chunk.agents, noise.numpy(), strict=True):
            generator = stream(self._seed, purpose, iteration, agent)
            out[:, : data.size] = chunk.cohort.head.draw(generator, shape)
        return noise.to(self._device)

    def _target_actions(
        self,
        agents: Collection[Unit],
        data: Minibatch,
        iteration: int,
        proceed: Callable[[], None],
    ) -> None:
        """Target actions of the agents, into the joint input of the target critics."""
        for cohort, chunks in zip(self._cohorts, self._chunks, strict=True):
            wanted = [row for row, agent in enumerate(cohort.agents) if agent in agents]
            for rows in chunks.split(wanted, data.columns):
                proceed()
                chunk = chunks.take(rows, data.columns)
                noise = self._noise(chunk, data, "target_action", iteration)
                space = chunk.space
                for tile in data.tiles:
                    own = chunk.own(tile.next_joint)
                    outputs = forward(chunk.target_policy, own, space.policy, space.outputs)
                    actions = cohort.head.sample(outputs, noise[:, :, tile.span])
                    actions *= tile.acts_next.index_select(0, chunk.agent_index)
                    tile.next_joint.index_copy_(0, chunk.action_rows, actions.flatten(0, 1))

    def _gradient(
        self, chunk: Chunk, data: Minibatch, iteration: int, proceed: Callable[[], None]
    ) -> Tensor:
        """Rows [critic gradient; policy gradient], clipped variable by variable."""
        noise = self._noise(chunk, data, "policy_action", iteration)
        torch.gather(chunk.critic.first, 2, chunk.action_columns, out=chunk.space.action_weights)
        for tile in data.tiles:
            reward, continues, weight = tile.per_agent.index_select(0, chunk.agent_index).unbind(1)
            beta = float(tile is not data.tiles[0])
            proceed()
            expected = self._expected_return(chunk, tile, reward, continues)
            proceed()
            self._critic_gradient(chunk, tile, expected, weight, beta=beta)
            proceed()
            self._policy_gradient(chunk, tile, noise[:, :, tile.span], weight, beta=beta)
        proceed()
        chunk.space.clipper.clip()
        return chunk.space.gradient

    def _expected_return(
        self, chunk: Chunk, tile: Tile, reward: Tensor, continues: Tensor
    ) -> Tensor:
        """r_i + discount (1 - terminated_i) Q'_i(s', a'), shape (units, 1, columns)."""
        critic, space = chunk.target_critic, chunk.space
        self._first_layer(chunk, critic.first, tile.next_joint)
        value = upper(critic, space.critic, space.value)
        return torch.addcmul(reward, continues, value, value=self._config.discount)

    def _critic_gradient(
        self, chunk: Chunk, tile: Tile, expected: Tensor, weight: Tensor, *, beta: float
    ) -> None:
        """Leaves the pre-activation of the first layer in the critic's tape."""
        space = chunk.space
        self._first_layer(chunk, chunk.critic.first, tile.joint)
        value = upper(chunk.critic, space.critic, space.value)
        error = value.sub_(expected).mul_(weight).mul_(2.0)
        backward(chunk.critic, error, space.critic)
        first = space.critic_gradient[0]
        if chunk.local:
            first.baddbmm_(space.critic.below, space.seen.transpose(1, 2), beta=beta)
        else:
            self._kernel.shared_product(space.critic.below, tile.joint_rows, first, beta=beta)
        upper_gradients(error, space.critic, space.critic_gradient, beta=beta)

    def _first_layer(self, chunk: Chunk, weights: Tensor, joint: Tensor) -> None:
        """Critics' pre-activation of their first layer, into their tape."""
        if chunk.local:
            torch.bmm(weights, chunk.seen(joint), out=chunk.space.critic.first)
        else:
            self._kernel.shared_product(weights, joint, chunk.space.critic.first)

    def _policy_gradient(
        self, chunk: Chunk, tile: Tile, noise: Tensor, weight: Tensor, *, beta: float
    ) -> None:
        """Only own actions differ from the critic's pass, so only their columns are computed."""
        space, head = chunk.space, chunk.cohort.head
        own = chunk.own(tile.joint)
        outputs = forward(chunk.policy, own, space.policy, space.outputs)
        actions = head.sample(outputs, noise)
        replayed = tile.joint.index_select(0, chunk.action_rows).view_as(actions)
        space.critic.first.baddbmm_(space.action_weights, actions - replayed)
        hidden(chunk.critic, space.critic)
        backward(chunk.critic, -weight, space.critic)
        action_gradient = torch.bmm(space.action_weights.transpose(1, 2), space.critic.below)
        gradient = head.gradient(outputs, actions, action_gradient)
        penalty = 2.0 * self._config.logit_penalty / chunk.cohort.policy.outputs
        gradient.addcmul_(outputs, weight, value=penalty)
        backward(chunk.policy, gradient, space.policy)
        space.policy_gradient[0].baddbmm_(space.policy.below, own.transpose(1, 2), beta=beta)
        upper_gradients(gradient, space.policy, space.policy_gradient, beta=beta)

    def apply(self, updates: FloatArray) -> None:
        """Adam on every online row, then the targets; equal updates give equal parameters."""
        self._steps += 1
        gradients = torch.from_numpy(np.require(updates, requirements="W"))
        for cohort in self._cohorts:
            own = gradients if len(cohort.agents) == self.units else gradients[[*cohort.agents]]
            with self._kernel.active():
                cohort.rows.step(own[:, : cohort.size], self._adam, count=self._steps)
            cohort.pull()

    def act(
        self, observation: FloatArray, *, iteration: int, step: int, alive: BoolArray
    ) -> FloatArray:
        """Exploring joint actions, keyed by (seed, iteration, step)."""
        generator = stream(self._seed, "act", iteration, step)
        actions = self._act(observation, lambda head, outputs: head.explore(outputs, generator))
        return actions * np.repeat(alive, self._layout.action_sizes, axis=1)

    def act_greedily(self, observation: FloatArray) -> FloatArray:
        """The likeliest actions as one-hot, or the means."""
        return self._act(observation, lambda head, outputs: head.mode(outputs))

    def _act(self, observation: FloatArray, choose: Callable[[Head, Tensor], Tensor]) -> FloatArray:
        with self._kernel.active():
            copies = len(observation)
            joint = torch.ones(self._layout.action.stop + 1, copies, device=self._device)
            seen = torch.from_numpy(np.require(observation, requirements="W"))
            joint[: self._layout.action.start] = seen.t()
            for cohort in self._cohorts:
                policy = cohort.policy.weights(cohort.rows.online)
                agents = len(cohort.agents)
                own = joint.index_select(0, cohort.observation_index.flatten())
                own = own.view(agents, -1, copies)
                first = own.new_empty(agents, self._config.hidden, copies)
                tape = Tape(first, torch.empty_like(first), first)
                outputs = own.new_empty(agents, cohort.policy.outputs, copies)
                actions = choose(cohort.head, forward(policy, own, tape, outputs))
                joint.index_copy_(0, cohort.action_index.flatten(), actions.flatten(0, 1))
            return np.ascontiguousarray(joint[self._layout.action].t().cpu().numpy())

    def state(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Copies of every network (``role/unit``), both moments, and the number of steps."""
        state = {name: part.cpu().numpy().copy() for name, part in self._parts()}
        return {**state, "steps": np.array([self._steps], np.int64)}

    def _parts(self) -> Iterator[tuple[str, Tensor]]:
        for unit, (cohort, row) in self._place.items():
            for name, part in cohort.parts(row):
                yield f"{name}/{unit}", part

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore what ``state`` gave."""
        shapes = {name: tuple(part.shape) for name, part in self._parts()} | {"steps": (1,)}
        for name, shape in shapes.items():
            found = state[name].shape if name in state else "nothing"
            if found != shape:
                raise CheckpointUnusable(
                    f"the checkpoint holds {found} as {name!r} where this configuration needs "
                    f"{shape}; resume with the configuration that wrote it"
                )
        for name, part in self._parts():
            part.copy_(torch.from_numpy(np.array(state[name])))
        self._steps = int(state["steps"][0])
        for cohort in self._cohorts:
            cohort.pull()

    def fingerprint(self) -> str:
        """Numeric identity of this process."""
        return kernels.fingerprint(self._kernel, self._device)


def _snapped(row: FloatArray) -> FloatArray:
    """A snapped copy, made in blocks that stay in cache: twice as fast for millions of entries."""
    copy = np.empty_like(row)
    for start in range(0, row.size, SNAP_ENTRIES):
        block = slice(start, start + SNAP_ENTRIES)
        snap(row[block], out=copy[block])
    return copy


def _device(name: str) -> torch.device:
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ConfigError("device 'cuda' is not available here; use 'cpu' or 'auto'")
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"unknown device {name!r}; use 'auto', 'cpu' or 'cuda'")
    return torch.device("cuda" if available and name != "cpu" else "cpu")
