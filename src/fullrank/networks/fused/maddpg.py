"""Hand-written update of MADDPG, per-side DDPG and MFAC, batched over agents.

The losses are those of ``fullrank.algorithms.maddpg``; tests compare it with their autograd.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, wait
from functools import cache, partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.common.rows import Rows
from fullrank.common.types import UnitIndex
from fullrank.networks.fused.critic_input import CriticInput
from fullrank.networks.fused.cuda import stays_on
from fullrank.networks.fused.gradients import (
    FusedGradients,
    HostDraw,
    LossWeights,
    Then,
    nothing,
    weigh,
)
from fullrank.networks.fused.kernels import Kernel
from fullrank.networks.fused.minibatch import ColumnBlock, Minibatch
from fullrank.networks.fused.mlp import backward, forward, upper
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.fused.products import batched_product
from fullrank.networks.fused.unit_batch import Passes, UnitBatch
from fullrank.replay.layout import Layout

_UnitBatches: TypeAlias = tuple[list[UnitBatch], list[UnitBatch]]
"""Those of the agents that act next, and those of the agents that learn."""


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

    def run_beside(self, executor: Executor) -> None:
        """Compute the policies' gradients of every further update on a thread, to the same bits.

        Not on CUDA, which computes beside all threads.

        Args:
            executor: Runs one call at a time.
        """
        if not self._graphs.captures:
            self._executor = executor

    def rows(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        """Compute u_i for each requested unit, part by part; see ``StayingGradients.rows``."""
        if not self._parts:
            yield from self._keyed(batch, units, (iteration,), check_cancelled)
            return
        sample, count = np.asarray(batch), len(self._parts)
        for part, own in enumerate(self._parts):
            agents = [unit // count for unit in units if unit % count == part]
            rows = sample[own.start : own.stop]
            weights = rows[:, self._layout.alive].sum(0) * np.float32(self._weights.transition)
            for agent, update in self._keyed(rows, agents, (iteration, part), check_cancelled):
                with self.kernel.active():
                    weight, factor = float(weights[agent]), self._factor(agent)
                    weigh(update, self._sizes[agent], weight, factor=factor)
                yield agent * count + part, update

    def _keyed(
        self,
        batch: Rows,
        agents: Sequence[int],
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[int, Tensor]]:
        """Compute the agents' gradients with draws keyed by ``key`` and agent."""
        if not agents:
            return
        if stays_on(self._device):
            rows = self._together(batch, agents, key, check_cancelled, nothing)
            for agent, row in zip(agents, rows, strict=True):
                yield agent, row[: self._sizes[agent] + self._after]
            return
        data, unit_batches = self._prepared(batch, agents)
        draws = iter(self._draws(unit_batches, key))
        stages = self._stages(data, unit_batches, draws, check_cancelled)
        while True:
            with self.kernel.active():
                unit_batch = next(stages, None)
            if unit_batch is None:
                return
            yield from self._rows_of(unit_batch)

    def _together(
        self,
        batch: Rows,
        agents: Sequence[int],
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
        then: Then,
    ) -> Tensor:
        data, unit_batches = self._prepared(batch, agents)
        with self.kernel.active():
            return self._launched(
                tuple(agents),
                data.size,
                partial(self._stages, data, unit_batches),
                draws=self._draws(unit_batches, key),
                check_cancelled=check_cancelled,
                then=then,
            )

    def _prepared(self, batch: Rows, agents: Sequence[int]) -> tuple[Minibatch, _UnitBatches]:
        """Take a minibatch, and return the unit batches that act next, and those of the agents."""
        read = agents if self._local.issuperset(agents) else range(self._layout.agents)
        with self.kernel.active():
            data = self._minibatch(batch.shape[0])
            data.put(batch)
            acting, own = list[UnitBatch](), list[UnitBatch]()
            for group, batches in zip(self._groups, self._batches, strict=True):
                row_of = {agent: row for row, agent in enumerate(group.agents)}
                reading = [row for agent, row in row_of.items() if agent in read]
                acting += batches.split(reading, data.columns)
                wanted = [row_of[agent] for agent in agents if agent in row_of]
                own += batches.split(wanted, data.columns)
        return data, (acting, own)

    def _draws(self, unit_batches: _UnitBatches, key: tuple[int, ...]) -> list[HostDraw]:
        """Return calls that make the keys of the unit batches' noise, one after the other."""
        return [
            partial(self._keys, each, purpose, *key)
            for purpose, batches in zip(
                ("target_action", "policy_action"), unit_batches, strict=True
            )
            for each in batches
        ]

    def _stages(
        self,
        data: Minibatch,
        unit_batches: _UnitBatches,
        draws: Iterator[HostDraw],
        check_cancelled: Callable[[], None],
    ) -> Iterator[UnitBatch]:
        """Compute unit batches, whose rows are [critic gradient; policy gradient], clipped."""
        data.load()
        acting, own = unit_batches
        for unit_batch in acting:
            self._act_next(unit_batch, data, next(draws), check_cancelled)
        for unit_batch in own:
            self._both_gradients(unit_batch, data, next(draws), check_cancelled)
            yield unit_batch

    def _act_next(
        self,
        unit_batch: UnitBatch,
        data: Minibatch,
        draw: HostDraw,
        check_cancelled: Callable[[], None],
    ) -> None:
        """Write the target actions of units into the joint input of the target critics."""
        check_cancelled()
        noise = self._noise(unit_batch, *draw(), size=data.size, width=data.width)
        buffers = unit_batch.buffers
        unit_batch.prepare_targets()
        for block, part in zip(data.blocks, noise.chunk(len(data.blocks), dim=2), strict=True):
            own = unit_batch.own(block.next_rows)
            outputs = forward(unit_batch.target_policy, own, buffers.passes.policy, buffers.outputs)
            actions = unit_batch.group.head.sample(outputs, part)
            actions *= unit_batch.agent_rows.of(block.acts_next)
            unit_batch.action_rows.put(block.next_joint, actions.flatten(0, 1))

    def _both_gradients(
        self,
        unit_batch: UnitBatch,
        data: Minibatch,
        draw: HostDraw,
        check_cancelled: Callable[[], None],
    ) -> None:
        """Compute the gradients of critics and policies, clipped variable by variable."""
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

    def _policies_beside(self, unit_batch: UnitBatch, data: Minibatch, draw: HostDraw) -> None:
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
        draw: HostDraw,
        passes: Passes,
    ) -> Iterator[None]:
        """Accumulate the policies' gradients block by block, each after the critics' if shared."""
        noise = self._noise(unit_batch, *draw(), size=data.size, width=data.width)
        outputs = unit_batch.buffers.outputs
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
            batched_product(below, seen.transpose(1, 2), affine, beta=beta)
        else:
            self.kernel.shared_product(below, block.joint_rows, affine, beta=beta)
        activations.upper_gradients(error, *buffers.critic_gradient, beta=beta)


def _first_layer(
    kernel: Kernel, unit_batch: UnitBatch, weights: Tensor, joint_rows: Tensor, *, out: Tensor
) -> Tensor:
    """Compute the pre-activation of the critics' first layer; return the critics' input."""
    if unit_batch.local:
        seen = unit_batch.seen(joint_rows)
        batched_product(weights, seen, out)
        return seen
    joint = joint_rows.t()
    kernel.shared_product(weights, joint, out)
    return joint
