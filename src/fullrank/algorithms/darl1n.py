"""DARL1N: actor-critic of one-hop neighbours, whose learners make the samples of their units.

[DARL1N], Sec. III and Algorithm 1. u_i = [gradient of the critic loss; gradient of the policy
loss] with, over B samples of agent i and its neighbours N_i,

    critic loss = mean (r_i + discount Q'_i(o'_i, a'_N') - Q_i(o_i, a_N))^2
    policy loss = -mean Q_i(o_i, a_N with a_i a sample of pi_i(o_i)) + penalty mean(logits^2)

and a'_l a sample of the target policy of l, given what l itself sees, for each next neighbour l.

Iteration k makes its B samples of agent i by neighbour interaction, with actions of the policies
broadcast for k. There are two data modes:

- ``keyed``: draws are keyed by (seed, k, i). u_i is then as pure a function as with a shared
  minibatch, and every holder of unit i gets the same bits.
- ``independent``, as in the paper: draws are keyed by (seed, k, j, i) for the holder of row j, so
  that holders' updates differ by the noise of their samples. Updates are clipped once decoded.

Differs from the paper in:

- Every update has fresh samples; the authors' learners each keep a replay of their own, add to it
  by their own draws, and take B of it (docs/adr/0028 compares both).
- Samples are single steps from anywhere, as in the authors' code, or by ``samples`` the steps of
  whole episodes (docs/adr/0032 compares both).
- With ``independent``, decoding weighs rows by their noise, and waits until little of it is left
  (docs/adr/0030); the paper's solves the first rows of rank M.
- Target actions are made in the update; the authors' code stores them with the transition.
- ``target_rate`` is the weight of the new parameters (0.01); tau is that of the old ones (0.99).
- Both sides of a contest learn; the authors' adversaries are policies trained before.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.actor_critics import (
    ActorCriticConfig,
    ActorCritics,
    device_of,
    snapped,
)
from fullrank.algorithms.base import register
from fullrank.algorithms.local_samples import Act, MakeSamples, Samples, from_episodes, from_resets
from fullrank.algorithms.sections import ActorCriticDimensions, layout_of
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray, UnitIndex
from fullrank.environments.base import AgentSpec
from fullrank.environments.neighbourhood import NeighbourhoodWorld
from fullrank.networks.fused.chunk import Chunk
from fullrank.networks.fused.clip import Clipper
from fullrank.networks.fused.cohort import ROLES, make_cohorts, networks
from fullrank.networks.fused.individuals import act_individually
from fullrank.networks.fused.mlp import Mlp, backward, upper
from fullrank.networks.fused.sight import Sight

WAYS: dict[str, MakeSamples] = {"resets": from_resets, "episodes": from_episodes}

UNCLIPPED = float(np.finfo(np.float32).max)
"""Clipping to this norm changes nothing."""


@register("darl1n")
@dataclass(frozen=True, slots=True, kw_only=True)
class DARL1NConfig(ActorCriticConfig):
    """DARL1N, for environments with neighbour interaction."""

    samples: Literal["resets", "episodes"] = "resets"
    """Single steps from states that a reset draws, for which only those around an agent are
    simulated; or the steps of whole episodes, for which the whole team is."""
    data: Literal["keyed", "independent"] = "keyed"
    """Whether all holders of a unit make the same samples, so that updates are exact and audited,
    or each draws its own, as in the paper: then nothing is exact, and nothing can be audited."""
    max_variance: float = 2.0
    """With ``independent``: an iteration waits for further rows until the predicted variance of its
    decoded gradients, mean over the units, is at most so many times that of one learner's own; 2
    is the noise of half the samples. 0: for all rows; inf: for rank M alone. It never waits for
    learners that are gone, nor beyond the deadline."""
    evaluate_every: int = 10
    """Iterations from one evaluation in the whole environment to the next, which plays one episode
    in each copy without exploration."""

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if self.evaluate_every < 1:
            raise ConfigError("algorithm.evaluate_every must be at least 1")
        if not self.max_variance >= 0.0:
            raise ConfigError("algorithm.max_variance must be at least 0")

    def within(self, world: NeighbourhoodWorld) -> "DARL1NRecipe":
        """See ``LocalAlgorithmConfig.within``."""
        kind = IndependentDARL1NRecipe if self.data == "independent" else DARL1NRecipe
        return kind(config=self, world=world)


@dataclass(frozen=True, slots=True, kw_only=True)
class DARL1NRecipe:
    """See ``AlgorithmConfig``."""

    config: DARL1NConfig
    world: NeighbourhoodWorld
    batch_size: int = 0

    def dimensions(self, agents: Sequence[AgentSpec]) -> "DARL1NDimensions":
        """Sizes of sections and updates."""
        return DARL1NDimensions(self.config, self.world, agents)

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> "DARL1N":
        """Build policies, critics and targets for the agents."""
        return DARL1N(self.config, self.world, agents, seed=seed, device=device_of(device))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentDARL1NRecipe(DARL1NRecipe):
    """See ``IndependentAlgorithmConfig``."""

    @property
    def max_variance(self) -> float:
        """As configured."""
        return self.config.max_variance

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> "IndependentDARL1N":
        """Build policies, critics and targets for the agents."""
        device_ = device_of(device)
        return IndependentDARL1N(self.config, self.world, agents, seed=seed, device=device_)


class DARL1NDimensions(ActorCriticDimensions):
    """Those of critics that see their agents' neighbours."""

    def __init__(
        self, config: DARL1NConfig, world: NeighbourhoodWorld, agents: Sequence[AgentSpec]
    ) -> None:
        self._world, self._whole_team = world, config.samples == "episodes"
        layout, hidden, neighbours = layout_of(agents), config.hidden, world.neighbours_seen
        nets = [
            networks(layout, agent, hidden=hidden, sight=Sight.OWN, neighbours=neighbours)
            for agent in range(layout.agents)
        ]
        super().__init__(layout, nets)

    def needs(self, unit: UnitIndex) -> Sequence[int]:
        """The unit's own critic and target critic; both policies of all who act in its samples."""
        policy, critic, target_policy, target_critic = (k * self.units for k in range(len(ROLES)))
        acting = range(self.units) if self._whole_team else self._world.actors(unit)
        policies = [start + agent for start in (policy, target_policy) for agent in acting]
        return (critic + unit, target_critic + unit, *policies)


class _Tile(NamedTuple):
    """Some of the samples of a chunk's units, a column each, padded with zeros."""

    span: slice
    """Its columns among all."""
    seen: Tensor
    """What the critics see and ones, shape (units, inputs + 1, columns)."""
    seen_next: Tensor
    reward: Tensor
    """Shape (units, 1, columns)."""
    weight: Tensor
    """1 / B, and 0 in padding, shape (units, 1, columns)."""


class DARL1N(DARL1NDimensions, ActorCritics):
    """The contract is ``Algorithm``."""

    def __init__(
        self,
        config: DARL1NConfig,
        world: NeighbourhoodWorld,
        specs: Sequence[AgentSpec],
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        DARL1NDimensions.__init__(self, config, world, specs)
        self._make_samples = WAYS[config.samples]
        layout = layout_of(specs)
        cohorts = make_cohorts(
            specs,
            layout,
            sights=[Sight.OWN] * len(specs),
            neighbours=world.neighbours_seen,
            hidden=config.hidden,
            noise=config.exploration_noise,
            device=device,
        )
        ActorCritics.__init__(self, config, cohorts, layout, seed=seed, device=device)
        (self._cohort,) = cohorts  # a local world's agents are of one shape
        self._width = -(-config.batch_size // self._columns) * self._columns

    def updates(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each unit asked for; see ``Algorithm.updates``.

        One call at a time: a newer call takes over the buffers of an older one.
        """
        return self._updates(units, (iteration,), check_cancelled)

    def _updates(
        self, units: Sequence[UnitIndex], key: tuple[int, ...], check_cancelled: Callable[[], None]
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Every draw is keyed by (purpose, *key, unit)."""
        (chunks,) = self._chunks
        for agents in chunks.split(sorted(units), self._columns):
            with self._kernel.active():
                chunk = chunks.take(agents, self._columns)
                distinct = list(dict.fromkeys(agents))
                made = {agent: self._samples(agent, key, check_cancelled) for agent in distinct}
                tiles = self._tiles([made[agent] for agent in agents])
                gradient = self._gradient(chunk, tiles, key, check_cancelled)
            for agent, row in zip(distinct, gradient.cpu().numpy(), strict=False):
                yield agent, snapped(row[: self._cohort.size])

    def _samples(
        self, agent: UnitIndex, key: tuple[int, ...], check_cancelled: Callable[[], None]
    ) -> Samples:
        """The samples of an agent that a key stands for, whoever makes them."""
        check_cancelled()
        return self._make_samples(
            self._world,
            agent,
            self._config.batch_size,
            generator=stream(self._seed, "local_world", *key, agent),
            act=self._act_of(agent, key),
            act_next=self._act_next_of(agent, key),
        )

    def _act_of(self, agent: UnitIndex, key: tuple[int, ...]) -> Act:
        """The policies, exploring, in samples of the agent."""
        head, generator = self._cohort.head, stream(self._seed, "local_action", *key, agent)
        return self._player(self._cohort.rows.online, lambda out: head.explore(out, generator))

    def _act_next_of(self, agent: UnitIndex, key: tuple[int, ...]) -> Act:
        """The target policies in samples of the agent."""
        head, generator = self._cohort.head, stream(self._seed, "target_action", *key, agent)

        def sample(outputs: Tensor) -> Tensor:
            (noise,) = torch.from_numpy(head.draw([generator], tuple(outputs.shape)))
            return head.sample(outputs, noise.to(self._device))

        return self._player(self._cohort.rows.target, sample)

    def _player(self, rows: Tensor, choose: Callable[[Tensor], Tensor]) -> Act:
        policy = self._cohort.policy
        own = rows[:, policy.start : policy.end]
        apart = Mlp(0, policy.inputs, policy.hidden, policy.outputs)

        def act(who: IntArray, observation: FloatArray) -> FloatArray:
            return act_individually(apart, own, who, observation, choose)

        return act

    def _tiles(self, made: Sequence[Samples]) -> list[_Tile]:
        """Samples of units side by side, turned so that a column is one sample."""
        size, inputs = self._config.batch_size, self._cohort.critic.inputs
        seen = np.zeros((2, len(made), inputs + 1, self._width), dtype=np.float32)
        seen[:, :, -1] = 1.0
        reward = np.zeros((len(made), 1, self._width), dtype=np.float32)
        for unit, samples in enumerate(made):
            seen[0, unit, :-1, :size] = samples.seen.T
            seen[1, unit, :-1, :size] = samples.seen_next.T
            reward[unit, 0, :size] = samples.reward
        weight = np.zeros_like(reward)
        weight[:, :, :size] = 1.0 / size
        now, after, earned, share = (
            torch.from_numpy(each).to(self._device) for each in (*seen, reward, weight)
        )
        spans = [slice(s, s + self._columns) for s in range(0, self._width, self._columns)]
        return [
            _Tile(each, *(part[:, :, each] for part in (now, after, earned, share)))
            for each in spans
        ]

    def _gradient(
        self,
        chunk: Chunk,
        tiles: Sequence[_Tile],
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Tensor:
        """Rows [critic gradient; policy gradient], clipped variable by variable."""
        size, observed = self._config.batch_size, self._cohort.policy.inputs
        noise = self._noise(chunk, "policy_action", *key, size=size, width=self._width)
        chunk.prepare()
        for tile in tiles:
            beta = float(tile is not tiles[0])
            check_cancelled()
            self._critic_gradient(chunk, tile, beta=beta)
            own = tile.seen[:, :observed]
            replayed = tile.seen[:, observed : observed + self._cohort.policy.outputs]
            part = noise[:, :, tile.span]
            self._policy_gradient(chunk, own, replayed, part, weight=tile.weight, beta=beta)
        check_cancelled()
        return chunk.clipped()

    def _critic_gradient(self, chunk: Chunk, tile: _Tile, *, beta: float) -> None:
        """Leaves the pre-activation of the critics' first layer in ``space.first``."""
        space, tape = chunk.space, chunk.space.critic
        torch.bmm(chunk.target_critic.affine, tile.seen_next, out=tape.h1)
        value = upper(chunk.target_critic, tape.h1, tape, space.value)
        expected = torch.add(tile.reward, value, alpha=self._config.discount)
        torch.bmm(chunk.critic.affine, tile.seen, out=space.first)
        value = upper(chunk.critic, space.first, tape, space.value)
        error = value.sub_(expected).mul_(tile.weight).mul_(2.0)
        backward(chunk.critic, error, tape)
        space.affine_gradient.baddbmm_(tape.below, tile.seen.transpose(1, 2), beta=beta)
        tape.upper_gradients(error, *space.critic_gradient, beta=beta)


class IndependentDARL1N(DARL1N):
    """The data mode ``independent``; the contract is ``IndependentAlgorithm``."""

    def __init__(
        self,
        config: DARL1NConfig,
        world: NeighbourhoodWorld,
        specs: Sequence[AgentSpec],
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        unclipped = replace(config, clip_norm=UNCLIPPED)
        DARL1N.__init__(self, unclipped, world, specs, seed=seed, device=device)
        self.max_variance, self._clip_norm = config.max_variance, config.clip_norm

    def updates_of_row(
        self,
        row: int,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """See ``IndependentAlgorithm.updates_of_row``."""
        return self._updates(units, (iteration, row), check_cancelled)

    def apply(self, updates: FloatArray) -> None:
        """Clip a copy of what was decoded, variable by variable, and step."""
        gradient = torch.from_numpy(updates.copy())
        layers = [*self._cohort.critic.layers, *self._cohort.policy.layers]
        views = [layer.parts(gradient) for layer in layers]
        Clipper(views, views, norm=self._clip_norm).clip()
        DARL1N.apply(self, gradient.numpy())
