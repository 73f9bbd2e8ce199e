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

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fullrank.algorithms.actor_critics import (
    ActorCriticConfig,
    ActorCritics,
    device_of,
    snapped,
)
from fullrank.algorithms.base import register
from fullrank.algorithms.maddpg_dimensions import MADDPGDimensions
from fullrank.algorithms.sections import layout_of
from fullrank.common.errors import ConfigError
from fullrank.common.registry import nearest
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.environments.base import AgentSpec
from fullrank.networks.fused.chunk import Chunk
from fullrank.networks.fused.cohort import make_cohorts
from fullrank.networks.fused.minibatch import Minibatch, Tile
from fullrank.networks.fused.mlp import backward, forward, upper
from fullrank.networks.fused.sight import Sight


@register("maddpg")
@dataclass(frozen=True, slots=True, kw_only=True)
class MADDPGConfig(ActorCriticConfig):
    """Coded MADDPG; one minibatch for all agents."""

    ddpg_sides: tuple[str, ...] = ()
    """Sides whose critics see only their own agent's observation and action."""

    sight: ClassVar[Sight] = Sight.JOINT
    """What the critics of the other sides see."""

    def dimensions(self, agents: Sequence[AgentSpec]) -> "MADDPGDimensions":
        """Sizes of sections, updates and transitions."""
        return MADDPGDimensions(layout_of(agents), hidden=self.hidden, sights=self.sights(agents))

    def sights(self, agents: Sequence[AgentSpec]) -> tuple[Sight, ...]:
        """What each agent's critic sees.

        Raises:
            ConfigError: Nobody plays for a side that is named.
        """
        sides = sorted({agent.side for agent in agents})
        for side in self.ddpg_sides:
            if side not in sides:
                raise ConfigError(
                    f"algorithm.ddpg_sides: nobody plays for {side!r}{nearest(side, sides)}"
                )
        return tuple(Sight.OWN if a.side in self.ddpg_sides else self.sight for a in agents)

    def make(self, agents: Sequence[AgentSpec], *, seed: int, device: str) -> "MADDPG":
        """Build policies, critics and targets for the agents."""
        return MADDPG(self, agents, seed=seed, device=device_of(device))


class MADDPG(MADDPGDimensions, ActorCritics):
    """The contract is ``Algorithm``."""

    def __init__(
        self,
        config: MADDPGConfig,
        specs: Sequence[AgentSpec],
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        layout, sights = layout_of(specs), config.sights(specs)
        MADDPGDimensions.__init__(self, layout, hidden=config.hidden, sights=sights)
        cohorts = make_cohorts(
            specs,
            layout,
            sights=sights,
            hidden=config.hidden,
            noise=config.exploration_noise,
            device=device,
        )
        ActorCritics.__init__(self, config, cohorts, layout, seed=seed, device=device)
        self._minibatch: Minibatch | None = None

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
        with self._kernel.active():
            data = self._load(batch)
            self._target_actions(self.asked(units), data, iteration, check_cancelled)
        for cohort, chunks in zip(self._cohorts, self._chunks, strict=True):
            wanted = [row for row, agent in enumerate(cohort.agents) if agent in units]
            for rows in chunks.split(wanted, data.columns):
                with self._kernel.active():
                    chunk = chunks.take(rows, data.columns)
                    gradient = self._gradient(chunk, data, iteration, check_cancelled)
                distinct = list(dict.fromkeys(chunk.agents))
                for agent, row in zip(distinct, gradient.cpu().numpy(), strict=False):
                    yield agent, snapped(row[: cohort.size])

    def _load(self, batch: FloatArray) -> Minibatch:
        if self._minibatch is None or self._minibatch.size != len(batch):
            self._minibatch = Minibatch(
                self._layout, size=len(batch), hidden=self._config.hidden, device=self._device
            )
        self._minibatch.load(batch)
        return self._minibatch

    def _target_actions(
        self,
        agents: Collection[UnitIndex],
        data: Minibatch,
        iteration: int,
        check_cancelled: Callable[[], None],
    ) -> None:
        """Target actions of the agents, into the joint input of the target critics."""
        for cohort, chunks in zip(self._cohorts, self._chunks, strict=True):
            wanted = [row for row, agent in enumerate(cohort.agents) if agent in agents]
            for rows in chunks.split(wanted, data.columns):
                check_cancelled()
                chunk = chunks.take(rows, data.columns)
                noise = self._noise(
                    chunk, "target_action", iteration, size=data.size, width=data.width
                )
                space = chunk.space
                for tile, part in zip(data.tiles, noise.chunk(len(data.tiles), dim=2), strict=True):
                    own = chunk.own(tile.next_joint)
                    outputs = forward(chunk.target_policy, own, space.policy, space.outputs)
                    actions = cohort.head.sample(outputs, part)
                    actions *= chunk.agent_rows.of(tile.acts_next)
                    chunk.action_rows.put(tile.next_joint, actions.flatten(0, 1))

    def _gradient(
        self, chunk: Chunk, data: Minibatch, iteration: int, check_cancelled: Callable[[], None]
    ) -> Tensor:
        """Rows [critic gradient; policy gradient], clipped variable by variable."""
        noise = self._noise(chunk, "policy_action", iteration, size=data.size, width=data.width)
        chunk.prepare()
        for tile, part in zip(data.tiles, noise.chunk(len(data.tiles), dim=2), strict=True):
            weight = chunk.agent_rows.of(tile.weight)
            beta = float(tile is not data.tiles[0])
            check_cancelled()
            expected = self._expected_return(chunk, tile)
            check_cancelled()
            self._critic_gradient(chunk, tile, expected, weight, beta=beta)
            check_cancelled()
            own = chunk.own(tile.joint)
            replayed = chunk.action_rows.of(tile.joint).view_as(chunk.space.outputs)
            self._policy_gradient(chunk, own, replayed, part, weight=weight, beta=beta)
        check_cancelled()
        return chunk.clipped()

    def _expected_return(self, chunk: Chunk, tile: Tile) -> Tensor:
        """r_i + discount (1 - terminated_i) Q'_i(s', a'), shape (units, 1, columns)."""
        critic, space = chunk.target_critic, chunk.space
        self._first_layer(chunk, critic.affine, tile.next_joint, out=space.critic.h1)
        value = upper(critic, space.critic.h1, space.critic, space.value)
        reward, continues = (chunk.agent_rows.of(each) for each in (tile.reward, tile.continues))
        return torch.addcmul(reward, continues, value, value=self._config.discount)

    def _critic_gradient(
        self, chunk: Chunk, tile: Tile, expected: Tensor, weight: Tensor, *, beta: float
    ) -> None:
        """Leaves the pre-activation of the critics' first layer in ``space.first``."""
        space = chunk.space
        self._first_layer(chunk, chunk.critic.affine, tile.joint, out=space.first)
        value = upper(chunk.critic, space.first, space.critic, space.value)
        error = value.sub_(expected).mul_(weight).mul_(2.0)
        backward(chunk.critic, error, space.critic)
        below, affine = space.critic.below, space.affine_gradient
        if chunk.local:
            affine.baddbmm_(below, space.seen.transpose(1, 2), beta=beta)
        else:
            self._kernel.shared_product(below, tile.joint_rows, affine, beta=beta)
        space.critic.upper_gradients(error, *space.critic_gradient, beta=beta)

    def _first_layer(self, chunk: Chunk, weights: Tensor, joint: Tensor, *, out: Tensor) -> None:
        """Critics' pre-activation of their first layer."""
        if chunk.local:
            torch.bmm(weights, chunk.seen(joint), out=out)
        else:
            self._kernel.shared_product(weights, joint, out)
