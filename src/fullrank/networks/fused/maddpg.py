"""Hand-written update of MADDPG, per-side DDPG and MFAC, batched over agents.

The losses are those of ``fullrank.algorithms.maddpg``; tests compare it with their autograd.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, wait
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.fused.critic_input import CriticInput
from fullrank.networks.fused.cuda import Graphs
from fullrank.networks.fused.gradients import (
    ColumnBlock,
    FusedGradients,
    LossWeights,
    Minibatch,
    weigh,
)
from fullrank.networks.fused.kernels import Kernel
from fullrank.networks.fused.mlp import backward, forward, upper
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.fused.unit_batch import Passes, UnitBatch
from fullrank.replay.layout import Layout


class FusedMADDPG(FusedGradients):
    """Updates of MADDPG and its variants; implements ``Gradients``.

    Args:
        groups: All agents, with the broadcast parameters.
        layout: Layout of a transition.
        weights: Hyperparameters of the losses.
        parts: Transitions of each micro-batch; empty: a unit is an agent.
        factor: Factor of an agent's summands.
        seed: The run's seed.
    """

    def __init__(
        self,
        groups: Sequence[NetworkGroup],
        layout: Layout,
        weights: LossWeights,
        *,
        parts: Sequence[range] = (),
        factor: Callable[[int], float],
        seed: int,
    ) -> None:
        super().__init__(groups, weights, seed=seed)
        self._parts, self._factor = parts, factor
        self._sizes = {agent: group.size for group in groups for agent in group.agents}
        self._layout = layout
        self._local = {
            agent
            for group in groups
            if group.critic_input is CriticInput.LOCAL
            for agent in group.agents
        }
        self._minibatch = cache(
            partial(
                Minibatch,
                layout,
                hidden=groups[0].policy.hidden,
                device=self._device,
                transition=weights.transition,
            )
        )
        self._executor: Executor | None = None
        self._graphs = Graphs(self._device)

    def run_beside(self, executor: Executor) -> None:
        """Compute the policies' gradients of every further update on a thread, to the same bits.

        Not on CUDA, which computes beside all threads.

        Args:
            executor: Runs one call at a time.
        """
        if not self._graphs.captures:
            self._executor = executor

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit, part by part; see ``Gradients.compute``.

        Only one call may be active: a newer call reuses the buffers of an older one.
        """
        if not self._parts:
            yield from self._keyed(batch, units, (iteration,), check_cancelled)
        count = len(self._parts)
        for part, own in enumerate(self._parts):
            agents = [unit // count for unit in units if unit % count == part]
            rows = batch[own.start : own.stop]
            weights = rows[:, self._layout.alive].sum(0) * np.float32(self._weights.transition)
            for agent, update in self._keyed(rows, agents, (iteration, part), check_cancelled):
                weigh(update, self._sizes[agent], weights[agent], factor=self._factor(agent))
                yield agent * count + part, update

    def _keyed(
        self,
        batch: FloatArray,
        agents: Sequence[int],
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[int, FloatArray]]:
        """Compute the agents' gradients with draws keyed by ``key`` and agent."""
        if not agents:
            return
        with self.kernel.active():
            data = self._minibatch(len(batch))
            data.load(batch)
            read = agents if self._local.issuperset(agents) else range(self._layout.agents)
            self._target_actions(read, data, key, check_cancelled)
        yield from self._by_agent(self._updates(agents, data, key, check_cancelled))

    def _updates(
        self,
        agents: Sequence[int],
        data: Minibatch,
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[Sequence[int], Iterator[FloatArray]]]:
        """Compute the agents' updates, unit batch by unit batch."""
        for group, batches in zip(self._groups, self._batches, strict=True):
            row_of = {agent: row for row, agent in enumerate(group.agents)}
            wanted = [row_of[agent] for agent in agents if agent in row_of]
            for rows in batches.split(wanted, data.columns):
                with self.kernel.active():
                    unit_batch = batches.take(rows, data.columns)
                    self._gradient(unit_batch, data, key, check_cancelled)
                    updates = self._updates_in(unit_batch)
                yield list(dict.fromkeys(unit_batch.agents)), updates

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
                unit_batch = batches.take(rows, data.columns)
                self._graphs.run(
                    ("target actions", data.size, unit_batch.agents),
                    partial(self._act_next, unit_batch, data),
                    draw=self._draw(unit_batch, "target_action", data, key),
                    check_cancelled=check_cancelled,
                )

    def _draw(
        self, unit_batch: UnitBatch, purpose: str, data: Minibatch, key: tuple[int, ...]
    ) -> Callable[[], Tensor]:
        """Return a call that draws the noise of the units' actions."""
        return partial(self._noise, unit_batch, purpose, *key, size=data.size, width=data.width)

    def _act_next(
        self,
        unit_batch: UnitBatch,
        data: Minibatch,
        draw: Callable[[], Tensor],
        check_cancelled: Callable[[], None],
    ) -> None:
        """Write the target actions of units into the joint input of the target critics."""
        check_cancelled()
        noise, buffers = draw(), unit_batch.buffers
        unit_batch.prepare_targets()
        for block, part in zip(data.blocks, noise.chunk(len(data.blocks), dim=2), strict=True):
            own = unit_batch.own(block.next_rows)
            outputs = forward(unit_batch.target_policy, own, buffers.passes.policy, buffers.outputs)
            actions = unit_batch.group.head.sample(outputs, part)
            actions *= unit_batch.agent_rows.of(block.acts_next)
            unit_batch.action_rows.put(block.next_joint, actions.flatten(0, 1))

    def _gradient(
        self,
        unit_batch: UnitBatch,
        data: Minibatch,
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> None:
        """Compute rows [critic gradient; policy gradient], clipped variable by variable."""
        self._graphs.run(
            ("gradients", data.size, unit_batch.agents),
            partial(self._both_gradients, unit_batch, data),
            draw=self._draw(unit_batch, "policy_action", data, key),
            check_cancelled=check_cancelled,
        )

    def _both_gradients(
        self,
        unit_batch: UnitBatch,
        data: Minibatch,
        draw: Callable[[], Tensor],
        check_cancelled: Callable[[], None],
    ) -> None:
        unit_batch.prepare()
        critics = self._critic_gradients(unit_batch, data, check_cancelled)
        if self._executor is None or unit_batch.local:  # local critics share one input
            passes = unit_batch.buffers.passes
            for _ in zip(
                critics, self._policy_gradients(unit_batch, data, draw, passes), strict=True
            ):
                check_cancelled()
        else:
            beside = self._executor.submit(self._policies_beside, unit_batch, data, draw)
            try:
                for _ in critics:
                    pass
            finally:
                wait([beside])  # it writes into the buffers
            beside.result()
        check_cancelled()
        unit_batch.clipped()

    def _policies_beside(
        self, unit_batch: UnitBatch, data: Minibatch, draw: Callable[[], Tensor]
    ) -> None:
        """Accumulate the policies' gradients on a thread that shares no results with the critics'.

        The kernel is active already, for the whole process; inference is a thread's own mode.
        """
        with torch.inference_mode():
            apart = unit_batch.buffers.apart
            for _ in self._policy_gradients(unit_batch, data, draw, apart):
                pass

    def _critic_gradients(
        self, unit_batch: UnitBatch, data: Minibatch, check_cancelled: Callable[[], None]
    ) -> Iterator[None]:
        """Accumulate the critics' gradients block by block."""
        for block in data.blocks:
            check_cancelled()
            expected = self._expected_return(unit_batch, block)
            check_cancelled()
            self._critic_gradient(
                unit_batch, block, expected, beta=float(block is not data.blocks[0])
            )
            yield

    def _policy_gradients(
        self,
        unit_batch: UnitBatch,
        data: Minibatch,
        draw: Callable[[], Tensor],
        passes: Passes,
    ) -> Iterator[None]:
        """Accumulate the policies' gradients block by block, each after the critics' if shared."""
        noise, outputs = draw(), unit_batch.buffers.outputs
        for block, part in zip(data.blocks, noise.chunk(len(data.blocks), dim=2), strict=True):
            if passes is not unit_batch.buffers.passes:
                affine = unit_batch.critic.affine
                _first_layer(self.kernel, unit_batch, affine, block.joint_rows, out=passes.first)
            self._policy_gradient(
                unit_batch,
                passes,
                unit_batch.own(block.joint_rows),
                unit_batch.action_rows.of(block.joint).view_as(outputs),
                part,
                weight=unit_batch.agent_rows.of(block.weight),
                beta=float(block is not data.blocks[0]),
            )
            yield

    def _expected_return(self, unit_batch: UnitBatch, block: ColumnBlock) -> Tensor:
        """Compute r_i + discount (1 - terminated_i) Q'_i(s', a'), shape (units, 1, columns)."""
        critic, buffers = unit_batch.target_critic, unit_batch.buffers
        activations = buffers.passes.critic
        _first_layer(self.kernel, unit_batch, critic.affine, block.next_rows, out=activations.h1)
        value = upper(critic, activations.h1, activations, buffers.value)
        reward, continues = (
            unit_batch.agent_rows.of(part) for part in (block.reward, block.continues)
        )
        return torch.addcmul(reward, continues, value, value=self._weights.discount)

    def _critic_gradient(
        self, unit_batch: UnitBatch, block: ColumnBlock, expected: Tensor, *, beta: float
    ) -> None:
        """Accumulate the critics' gradients; leave their first pre-activation in ``first``."""
        buffers, (first, activations, _) = unit_batch.buffers, unit_batch.buffers.passes
        seen = _first_layer(
            self.kernel, unit_batch, unit_batch.critic.affine, block.joint_rows, out=first
        )
        value = upper(unit_batch.critic, first, activations, buffers.value)
        weight = unit_batch.agent_rows.of(block.weight)
        error = buffers.errors(value, expected, weight).mul_(weight).mul_(2.0)
        backward(unit_batch.critic, error, activations)
        below, affine = activations.below, buffers.affine_gradient
        if unit_batch.local:
            affine.baddbmm_(below, seen.transpose(1, 2), beta=beta)
        else:
            self.kernel.shared_product(below, block.joint_rows, affine, beta=beta)
        activations.upper_gradients(error, *buffers.critic_gradient, beta=beta)


def _first_layer(
    kernel: Kernel, unit_batch: UnitBatch, weights: Tensor, joint_rows: Tensor, *, out: Tensor
) -> Tensor:
    """Compute the pre-activation of the critics' first layer; return the critics' input."""
    if unit_batch.local:
        seen = unit_batch.seen(joint_rows)
        torch.bmm(weights, seen, out=out)
        return seen
    joint = joint_rows.t()
    kernel.shared_product(weights, joint, out)
    return joint
