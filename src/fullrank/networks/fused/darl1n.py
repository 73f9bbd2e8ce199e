"""Hand-written update of DARL1N, batched over agents, and the transitions that a unit collects.

The losses are those of ``fullrank.algorithms.darl1n``; tests compare it with their autograd.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.common.rows import Rows
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray, UnitIndex
from fullrank.environments.neighbourhood import (
    AgentPolicy,
    MakeSamples,
    NeighbourhoodWorld,
    Samples,
)
from fullrank.networks.fused.cuda import stays_on
from fullrank.networks.fused.gradients import FusedGradients, HostDraw, LossWeights, Then, nothing
from fullrank.networks.fused.mlp import Activations, Mlp, backward, forward, upper
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.fused.products import batched_product
from fullrank.networks.fused.unit_batch import UnitBatch
from fullrank.networks.heads import Head
from fullrank.networks.parameters import aligned

MOST = 208
"""Maximum number of rows of one agent that are computed as one matrix."""


UnitSampler: TypeAlias = Callable[[UnitIndex, tuple[int, ...]], Samples]
"""Makes an agent's transitions; every draw is keyed by the iteration, or iteration and row."""

OutputsToActions: TypeAlias = Callable[[Tensor], Tensor]
"""Maps outputs to actions, both of shape (pieces, entries, rows of a piece)."""


class TeamPolicies(Protocol):
    """The policies of all agents, and their target policies."""

    head: Head
    """Makes actions of outputs."""

    def player(self, choose: OutputsToActions, *, target: bool) -> AgentPolicy:
        """Return what acts by the policies, or by the target ones, and a choice of actions."""


class PerceptronPolicies:
    """Policies that are perceptrons of one shape.

    Args:
        group: Networks of all agents.
        rows: Row of each agent's networks in the group.
    """

    def __init__(self, group: NetworkGroup, rows: IntArray) -> None:
        self.head, self._group, self._rows = group.head, group, rows

    def player(self, choose: OutputsToActions, *, target: bool) -> AgentPolicy:
        """Return what acts, all agents in one call; see ``TeamPolicies``."""
        policy, rows = self._group.policy, self._group.rows
        own = (rows.target if target else rows.online)[:, policy.start : policy.end]
        apart = Mlp(0, policy.inputs, policy.hidden, policy.outputs)

        def act(agents: IntArray, observation: FloatArray) -> FloatArray:
            with torch.inference_mode():
                return act_individually(apart, own, agents, observation, choose, rows=self._rows)

        return act


class NeighbourSampler:
    """Collect an agent's transitions with the broadcast policies and target policies.

    Args:
        world: Simulator of an agent's neighbourhood.
        make_samples: Collects single steps, or the steps of whole episodes.
        policies: Policies of all agents.
        batch_size: B, transitions per agent.
        seed: The run's seed.
    """

    def __init__(
        self,
        world: NeighbourhoodWorld,
        make_samples: MakeSamples,
        policies: TeamPolicies,
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self._world, self._make_samples, self._policies = world, make_samples, policies
        self._batch_size, self._seed = batch_size, seed

    def __call__(self, agent: UnitIndex, key: tuple[int, ...]) -> Samples:
        """Collect the agent's transitions; every draw is keyed by (purpose, *key, agent)."""
        return self._make_samples(
            self._world,
            agent,
            self._batch_size,
            generator=stream(self._seed, "local_world", *key, agent),
            act=self._act_of(agent, key),
            act_next=self._act_next_of(agent, key),
        )

    def _act_of(self, agent: UnitIndex, key: tuple[int, ...]) -> AgentPolicy:
        """Return the exploring policies for collecting the agent's transitions."""
        head, generator = self._policies.head, stream(self._seed, "local_action", *key, agent)
        return self._policies.player(lambda out: head.explore(out, generator), target=False)

    def _act_next_of(self, agent: UnitIndex, key: tuple[int, ...]) -> AgentPolicy:
        """Return the target policies for the agent's transitions."""
        head, generator = self._policies.head, stream(self._seed, "target_action", *key, agent)

        def sample(outputs: Tensor) -> Tensor:
            (noise,) = torch.from_numpy(head.draw([generator], tuple(outputs.shape)))
            return head.sample(outputs, noise.to(outputs.device))

        return self._policies.player(sample, target=True)


def act_individually(
    policy: Mlp,
    parameters: Tensor,
    who: IntArray,
    observation: FloatArray,
    choose: OutputsToActions,
    *,
    rows: IntArray,
) -> FloatArray:
    """Apply to each row the policy of its agent, all agents in one call.

    An agent's rows are cut into pieces of the mean number of rows per agent, the last one padded
    with any row, so that the work grows with the rows and not with the agents; each piece is one
    matrix of a ``bmm``. There are at least as many pieces as threads, because several threads on
    one matrix would change its bits.

    Args:
        policy: Places the policy's layers in a row of ``parameters``.
        parameters: Rows of all policies, each of shape (>= policy.end,).
        who: Agent of each row, shape (n,).
        observation: Observation of each row, shape (n, D).
        choose: Maps outputs to actions, both of shape (pieces, actions, rows of a piece).
        rows: Row of each agent's policy, shape (M,).

    Returns:
        Actions, shape (n, actions).
    """
    narrow = who.astype(np.min_scalar_type(len(rows)))  # up to 16 bits sort by radix
    order = np.argsort(narrow, kind="stable")
    counts = np.bincount(who)
    agents = np.flatnonzero(counts)
    counts = counts[agents]
    length = min(aligned(-(-len(who) // len(agents))), MOST)
    pieces = -(-counts // length)
    pieces[-1] += max(0, torch.get_num_threads() - pieces.sum())
    skipped = length * pieces - counts
    place = np.arange(len(who)) + np.repeat(np.cumsum(skipped) - skipped, counts)
    source = np.zeros(length * int(pieces.sum()), dtype=np.int64)
    source[place] = order
    padded = observation.take(source, axis=0)
    owners = torch.from_numpy(rows[np.repeat(agents, pieces)]).to(parameters.device)
    inputs = torch.from_numpy(padded).to(parameters.device).view(len(owners), length, -1)
    own = torch.index_select(parameters, 0, owners)
    actions = choose(_outputs(policy, own, inputs.transpose(1, 2)))
    target = np.empty_like(order)
    target[order] = place
    taken = actions.transpose(1, 2).reshape(len(padded), -1).cpu().numpy()
    return taken.take(target, axis=0)


def _outputs(policy: Mlp, parameters: Tensor, inputs: Tensor) -> Tensor:
    """Map inputs, shape (pieces, inputs, columns), to outputs, shape (pieces, outputs, columns)."""
    pieces, _, columns = inputs.shape
    below = inputs.new_empty(pieces, policy.hidden, columns)
    activations = Activations(below, below)
    out = inputs.new_empty(pieces, policy.outputs, columns)
    return forward(policy.weights(parameters), inputs, activations, out)


class _ColumnBlock(NamedTuple):
    """A block of the transitions of a unit batch, one per column, padded with zeros."""

    seen: Tensor
    """Critic inputs and a row of ones, shape (units, inputs + 1, columns)."""
    seen_next: Tensor
    reward: Tensor
    """Rewards, shape (units, 1, columns)."""
    weight: Tensor
    """1 / B, and 0 in padding, shape (units, 1, columns)."""


class FusedDARL1N(FusedGradients):
    """Updates of DARL1N; implements ``Gradients``.

    Args:
        group: All agents, which have one shape in an environment of neighbours.
        sampler: Collects the transitions of a unit.
        weights: Hyperparameters of the losses.
        seed: The run's seed.
        keyed_by_row: True if every holder of a unit draws its own transitions.
    """

    def __init__(
        self,
        group: NetworkGroup,
        sampler: UnitSampler,
        weights: LossWeights,
        *,
        seed: int,
        keyed_by_row: bool,
    ) -> None:
        super().__init__([group], weights, seed=seed)
        self._group, self._sampler, self._keyed_by_row = group, sampler, keyed_by_row
        self._width = -(-weights.batch_size // self._columns) * self._columns

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
        key = (iteration,) if row is None or not self._keyed_by_row else (iteration, row)
        return self._on_host(self._updates(batch, units, key, check_cancelled))

    def rows(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        """Compute u_i for each requested unit where it stays; see ``StayingGradients``."""
        return self._updates(batch, units, (iteration,), check_cancelled)

    def _updates(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        """Compute the updates of unit batches; every draw is keyed by (purpose, *key, unit)."""
        if stays_on(self._device):
            agents = tuple(sorted(units))
            rows = self._together(batch, agents, key, check_cancelled, nothing)
            yield from zip(agents, rows, strict=True)
            return
        for unit_batch in self._unit_batches(units):
            draws = iter([partial(self._drawn, unit_batch, key, check_cancelled)])
            with self.kernel.active():
                [*_] = self._stages([unit_batch], draws, check_cancelled)
            yield from self._rows_of(unit_batch)

    def _together(
        self,
        batch: Rows,
        agents: tuple[UnitIndex, ...],
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
        then: Then,
    ) -> Tensor:
        unit_batches = self._unit_batches(agents)
        with self.kernel.active():
            return self._launched(
                agents,
                None,
                partial(self._stages, unit_batches),
                draws=[partial(self._drawn, each, key, check_cancelled) for each in unit_batches],
                check_cancelled=check_cancelled,
                then=then,
            )

    def _unit_batches(self, units: Sequence[UnitIndex]) -> list[UnitBatch]:
        (batches,) = self._batches
        with self.kernel.active():
            return batches.split(sorted(units), self._columns)

    def _drawn(
        self, unit_batch: UnitBatch, key: tuple[int, ...], check_cancelled: Callable[[], None]
    ) -> tuple[Tensor, ...]:
        """Collect the transitions of the units.

        Returns:
            Critic inputs, the next ones, rewards and weights so that a column is a transition, as
            in ``_ColumnBlock``, and the keys of the noise of the actions.
        """
        samples_of = {}
        for agent in dict.fromkeys(unit_batch.agents):
            check_cancelled()
            samples_of[agent] = self._sampler(agent, key)
        samples_by_unit = [samples_of[agent] for agent in unit_batch.agents]
        size, inputs = self._weights.batch_size, self._group.critic.inputs
        seen = np.zeros((2, len(samples_by_unit), inputs + 1, self._width), dtype=np.float32)
        seen[:, :, -1] = 1.0
        reward = np.zeros((len(samples_by_unit), 1, self._width), dtype=np.float32)
        for unit, samples in enumerate(samples_by_unit):
            seen[0, unit, :-1, :size] = samples.seen.T
            seen[1, unit, :-1, :size] = samples.seen_next.T
            reward[unit, 0, :size] = samples.reward
        weight = np.zeros_like(reward)
        weight[:, :, :size] = 1.0 / size
        keys = self._keys(unit_batch, "policy_action", *key)
        return (*(torch.from_numpy(array) for array in (*seen, reward, weight)), *keys)

    def _stages(
        self,
        unit_batches: Sequence[UnitBatch],
        draws: Iterator[HostDraw],
        check_cancelled: Callable[[], None],
    ) -> Iterator[UnitBatch]:
        """Compute unit batches, whose rows are [critic gradient; policy gradient], clipped."""
        spans = [slice(s, s + self._columns) for s in range(0, self._width, self._columns)]
        observed = self._group.policy.inputs
        for unit_batch, draw in zip(unit_batches, draws, strict=True):
            *columns, keys = draw()
            size = self._weights.batch_size
            noise = self._noise(unit_batch, keys, size=size, width=self._width)
            unit_batch.prepare()
            for span in spans:
                block = _ColumnBlock(*(part[:, :, span] for part in columns))
                beta = float(span.start > 0)
                check_cancelled()
                self._critic_gradient(unit_batch, block, beta=beta)
                own = block.seen[:, :observed]
                replayed = block.seen[:, observed : observed + self._group.policy.outputs]
                self._policy_gradient(
                    *(unit_batch, unit_batch.buffers.passes, own, replayed, noise[:, :, span]),
                    weight=block.weight,
                    beta=beta,
                )
            check_cancelled()
            unit_batch.clipped()
            yield unit_batch

    def _critic_gradient(self, unit_batch: UnitBatch, block: _ColumnBlock, *, beta: float) -> None:
        """Accumulate the critics' gradients; leave their first pre-activation in ``first``."""
        buffers, (first, activations, _) = unit_batch.buffers, unit_batch.buffers.passes
        batched_product(unit_batch.target_critic.affine, block.seen_next, activations.h1)
        value = upper(unit_batch.target_critic, activations.h1, activations, buffers.value)
        expected = torch.add(block.reward, value, alpha=self._weights.discount)
        batched_product(unit_batch.critic.affine, block.seen, first)
        value = upper(unit_batch.critic, first, activations, buffers.value)
        error = buffers.errors(value, expected, block.weight).mul_(block.weight).mul_(2.0)
        backward(unit_batch.critic, error, activations)
        below, affine = activations.below, buffers.affine_gradient
        batched_product(below, block.seen.transpose(1, 2), affine, beta=beta)
        activations.upper_gradients(error, *buffers.critic_gradient, beta=beta)
