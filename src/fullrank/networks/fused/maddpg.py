"""Hand-written update of MADDPG, per-side DDPG and MFAC, batched over agents.

The losses are those of ``fullrank.algorithms.maddpg``; tests compare it with their autograd.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor

from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.fused.critic_input import CriticInput
from fullrank.networks.fused.gradients import FusedGradients, LossWeights, snapped
from fullrank.networks.fused.minibatch import ColumnBlock, Minibatch
from fullrank.networks.fused.mlp import backward, forward, upper
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.fused.unit_batch import UnitBatch
from fullrank.replay.layout import Layout


class FusedMADDPG(FusedGradients):
    """Updates of MADDPG and its variants; implements ``Gradients``.

    Args:
        groups: All agents, with the broadcast parameters.
        layout: Layout of a transition.
        weights: Hyperparameters of the losses.
        seed: The run's seed.
    """

    def __init__(
        self,
        groups: Sequence[NetworkGroup],
        layout: Layout,
        weights: LossWeights,
        *,
        seed: int,
    ) -> None:
        super().__init__(groups, weights, seed=seed)
        self._layout, self._hidden = layout, groups[0].policy.hidden
        self._local = {
            agent
            for group in groups
            if group.critic_input is CriticInput.LOCAL
            for agent in group.agents
        }
        self._minibatches: dict[int, Minibatch] = {}

    def _asked(self, units: Collection[UnitIndex]) -> Collection[UnitIndex]:
        """Return the agents whose target actions the updates read: all, or the own one in DDPG."""
        return units if self._local.issuperset(units) else range(self._layout.agents)

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit; see ``Gradients.compute``.

        Only one call may be active: a newer call reuses the buffers of an older one.
        """
        return self.keyed(batch, units, key=(iteration,), check_cancelled=check_cancelled)

    def keyed(
        self,
        batch: FloatArray,
        agents: Sequence[int],
        *,
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[int, FloatArray]]:
        """Compute the agents' gradients with draws keyed by ``key`` and agent; see ``compute``."""
        with self.kernel.active():
            data = self._load(batch)
            self._target_actions(self._asked(agents), data, key, check_cancelled)
        for group, batches in zip(self._groups, self._batches, strict=True):
            row_of = {agent: row for row, agent in enumerate(group.agents)}
            wanted = [row_of[agent] for agent in agents if agent in row_of]
            for rows in batches.split(wanted, data.columns):
                with self.kernel.active():
                    unit_batch = batches.take(rows, data.columns)
                    gradient = self._gradient(unit_batch, data, key, check_cancelled)
                distinct = list(dict.fromkeys(unit_batch.agents))
                for agent, update in zip(distinct, gradient.cpu().numpy(), strict=False):
                    yield agent, snapped(update[: group.size])

    def _load(self, batch: FloatArray) -> Minibatch:
        minibatch = self._minibatches.get(len(batch))
        if minibatch is None:
            minibatch = self._minibatches[len(batch)] = Minibatch(
                self._layout,
                size=len(batch),
                hidden=self._hidden,
                device=self._device,
                transition=self._weights.transition,
            )
        minibatch.load(batch)
        return minibatch

    def _target_actions(
        self,
        agents: Collection[UnitIndex],
        data: Minibatch,
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> None:
        """Write the agents' target actions into the joint input of the target critics."""
        for group, batches in zip(self._groups, self._batches, strict=True):
            wanted = [row for row, agent in enumerate(group.agents) if agent in agents]
            for rows in batches.split(wanted, data.columns):
                check_cancelled()
                unit_batch = batches.take(rows, data.columns)
                noise = self._noise(
                    unit_batch, "target_action", *key, size=data.size, width=data.width
                )
                buffers = unit_batch.buffers
                unit_batch.prepare_targets()
                for block, part in zip(
                    data.blocks, noise.chunk(len(data.blocks), dim=2), strict=True
                ):
                    own = unit_batch.own(block.next_rows)
                    outputs = forward(
                        unit_batch.target_policy, own, buffers.policy, buffers.outputs
                    )
                    actions = group.head.sample(outputs, part)
                    actions *= unit_batch.agent_rows.of(block.acts_next)
                    unit_batch.action_rows.put(block.next_joint, actions.flatten(0, 1))

    def _gradient(
        self,
        unit_batch: UnitBatch,
        data: Minibatch,
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Tensor:
        """Compute rows [critic gradient; policy gradient], clipped variable by variable."""
        noise = self._noise(unit_batch, "policy_action", *key, size=data.size, width=data.width)
        unit_batch.prepare()
        for block, part in zip(data.blocks, noise.chunk(len(data.blocks), dim=2), strict=True):
            weight = unit_batch.agent_rows.of(block.weight)
            beta = float(block is not data.blocks[0])
            check_cancelled()
            expected = self._expected_return(unit_batch, block)
            check_cancelled()
            self._critic_gradient(unit_batch, block, expected, weight, beta=beta)
            check_cancelled()
            own = unit_batch.own(block.joint_rows)
            replayed = unit_batch.action_rows.of(block.joint).view_as(unit_batch.buffers.outputs)
            self._policy_gradient(unit_batch, own, replayed, part, weight=weight, beta=beta)
        check_cancelled()
        return unit_batch.clipped()

    def _expected_return(self, unit_batch: UnitBatch, block: ColumnBlock) -> Tensor:
        """Compute r_i + discount (1 - terminated_i) Q'_i(s', a'), shape (units, 1, columns)."""
        critic, buffers = unit_batch.target_critic, unit_batch.buffers
        self._first_layer(unit_batch, critic.affine, block.next_rows, out=buffers.critic.h1)
        value = upper(critic, buffers.critic.h1, buffers.critic, buffers.value)
        reward, continues = (
            unit_batch.agent_rows.of(part) for part in (block.reward, block.continues)
        )
        return torch.addcmul(reward, continues, value, value=self._weights.discount)

    def _critic_gradient(
        self,
        unit_batch: UnitBatch,
        block: ColumnBlock,
        expected: Tensor,
        weight: Tensor,
        *,
        beta: float,
    ) -> None:
        """Accumulate the critics' gradients; leave their first pre-activation in ``first``."""
        buffers = unit_batch.buffers
        seen = self._first_layer(
            unit_batch, unit_batch.critic.affine, block.joint_rows, out=buffers.first
        )
        value = upper(unit_batch.critic, buffers.first, buffers.critic, buffers.value)
        error = value.sub_(expected).mul_(weight).mul_(2.0)
        backward(unit_batch.critic, error, buffers.critic)
        below, affine = buffers.critic.below, buffers.affine_gradient
        if unit_batch.local:
            affine.baddbmm_(below, seen.transpose(1, 2), beta=beta)
        else:
            self.kernel.shared_product(below, block.joint_rows, affine, beta=beta)
        buffers.critic.upper_gradients(error, *buffers.critic_gradient, beta=beta)

    def _first_layer(
        self, unit_batch: UnitBatch, weights: Tensor, joint_rows: Tensor, *, out: Tensor
    ) -> Tensor:
        """Compute the pre-activation of the critics' first layer; return the critics' input."""
        if unit_batch.local:
            seen = unit_batch.seen(joint_rows)
            torch.bmm(weights, seen, out=out)
            return seen
        joint = joint_rows.t()
        self.kernel.shared_product(weights, joint, out)
        return joint
