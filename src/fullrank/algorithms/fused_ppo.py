"""Gradients of PPO's losses by hand-written passes, for perceptrons on a CPU.

The losses are those of ``fullrank.algorithms.ppo``, with whose autograd tests compare them. Steps
lie entry by entry: the columns of a unit are the N steps of its first agent, then those of the
next one. Units are computed one after another, so that no bit depends on company.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.likelihoods import UNAVAILABLE, categoricals, clipped_gaussian
from fullrank.algorithms.on_policy import GroupMembers, Number, WholeMinibatch
from fullrank.algorithms.policies import GaussianPolicy, core_of
from fullrank.algorithms.problem import Problem
from fullrank.algorithms.updates import Statistics
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.environments.base import MultiDiscrete
from fullrank.networks.fused import kernels
from fullrank.networks.fused.perceptron import Perceptron, Workspace
from fullrank.networks.modules import layers_of, views
from fullrank.replay.episodes import EpisodeLayout, episodes_in

if TYPE_CHECKING:
    from fullrank.algorithms.ppo import PPO

Descend: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Maps dL / d ln pi and -dL / dH, shape (C,), to the gradient at a network's outputs, (A, C)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Read:
    """What a group's losses read of some steps; C columns, one for each member and step."""

    policy_inputs: Tensor
    """Inputs of the policy, shape (inputs, C)."""
    value_inputs: Tensor
    """Inputs of the value, likewise."""
    barred: Tensor
    """True where an action may not be chosen, shape (A, C)."""
    action: Tensor
    """Index of the action, shape (C,); of one that is a vector its entries, shape (C, A)."""
    acts: Tensor
    """1 where the agent had a choice, else 0, shape (C,)."""
    earns: Tensor
    """1 where the agent earns, else 0, shape (C,); see ``Steps``."""
    log_prob: Tensor
    value: Tensor
    advantage: Tensor


class Likelihood(NamedTuple):
    """How likely the actions were by a policy's outputs."""

    chosen: Tensor
    """Log-probability of each action, shape (C,)."""
    entropy: Tensor
    """Entropy of each choice, shape (C,)."""
    descend: Descend


class GroupPasses:
    """The passes of one group of agents.

    Args:
        learner: States the losses.
        own: Members of the group.
        nets: Networks at the broadcast parameters.
        layout: Layout of a row.
    """

    def __init__(
        self, learner: "PPO", own: GroupMembers, nets: Networks, layout: EpisodeLayout
    ) -> None:
        self._learner, self._own, self._nets, self._layout = learner, own, nets, layout
        first, group = own.agents[0], nets.group_of(own.agents[0])
        self._gradient, self._memory = torch.zeros(group.size), Workspace()
        self._policy, value = nets.policy[first], nets.value[first]
        found = {
            parameter: view
            for role, network in (("policy", self._policy), ("value", value))
            for parameter, view in views(network, self._gradient[group.networks[role]])
        }
        self._actor, self._critic = (
            Perceptron(layers_of(core_of(network)) or (), found, Workspace())
            for network in (self._policy, value)
        )
        if isinstance(self._policy, GaussianPolicy):
            self._of_deviation = found[self._policy.log_deviation]

    def read(self, rows: FloatArray) -> Read:
        """Read steps, shape (N, row_size); the next call overwrites them."""
        own, layout, learner = self._own, self._layout, self._learner
        columns = np.ascontiguousarray(rows.T)
        seen = columns[layout.observation], layout.observation_sizes
        policy_inputs = value_inputs = self._inputs("policy inputs", own.observation, *seen)
        if learner.joint:
            state = columns[layout.state]
            value_inputs = self._inputs("value inputs", len(state), state, [len(state)])
        available = self._take("offered", own.actions, len(rows))
        self._split(available, columns[layout.available], layout.action_sizes)
        offered, taken = available.reshape(own.actions, -1), self._columns(columns[layout.action])
        if own.vector is None:
            action, enough = np.maximum(taken, 0.0).astype(np.int64), 2.0
        else:
            entries = self._take("entries", own.actions, len(rows))
            self._split(entries, columns[layout.entries], layout.vectors)
            action, enough = np.ascontiguousarray(entries.reshape(own.actions, -1).T), 1.0
        acts = ((taken >= 0.0) & (offered.sum(0) >= enough)).astype(taken.dtype)
        derived = {name: self._columns(columns[part]) for name, part in layout.columns.items()}
        earns = np.ones_like(acts)
        if layout.own_rewards:
            earns = self._columns(columns[layout.earns])
        found = {"barred": offered <= 0.0, "action": action, "acts": acts, "earns": earns}
        return Read(
            policy_inputs=policy_inputs,
            value_inputs=value_inputs,
            **{name: torch.from_numpy(part) for name, part in (found | derived).items()},
        )

    def _take(self, name: str, entries: int, steps: int) -> FloatArray:
        """Return a buffer of entries of each member's steps, shape (entries, members, N)."""
        return self._memory.take(name, entries, len(self._own.agents), steps).numpy()

    def _columns(self, columns: FloatArray) -> FloatArray:
        """Return the columns of the members, of one for each agent, shape (C,)."""
        agents = [*self._own.agents]
        return (columns if len(agents) == len(columns) else columns[agents]).ravel()

    def _split(self, out: FloatArray, columns: FloatArray, sizes: Sequence[int]) -> None:
        """Copy the members' entries side by side, padded with zeros.

        Args:
            out: Shape (widest, members, N).
            columns: Entries agent by agent, shape (sum of sizes, N).
            sizes: Entries of each agent; a single size: these are for every member.
        """
        ends = [*accumulate(sizes)]
        assert ends[-1] == len(columns)
        for member, agent in enumerate(self._own.agents):
            number = agent if len(sizes) > 1 else 0
            part = columns[ends[number] - sizes[number] : ends[number]]
            out[: len(part), member] = part
            out[len(part) :, member] = 0.0

    def _inputs(self, name: str, widest: int, columns: FloatArray, sizes: Sequence[int]) -> Tensor:
        """Return the inputs of a network, with the members' identity, shape (inputs, C)."""
        inputs = self._take(name, self._own.width(widest), columns.shape[1])
        self._split(inputs[:widest], columns, sizes)
        if self._own.identity:
            inputs[widest:] = np.eye(len(self._own.agents))[..., None]
        return torch.from_numpy(inputs.reshape(len(inputs), -1))

    def update(
        self, read: Read, whole: WholeMinibatch, executor: Executor | None = None
    ) -> FloatArray:
        """Return the update of a unit.

        Args:
            read: What the losses read of its steps.
            whole: Facts of the whole minibatch.
            executor: Computes the value's pass; None: this thread does.
        """
        learner, value = self._learner, partial(self._value_errors, read, whole)
        beside = executor.submit(value) if executor is not None else None
        outputs = self._actor.forward(read.policy_inputs)
        likely = (self._vectors if self._own.vector else categorical)(outputs, read)
        advantage = read.advantage
        if learner.normalise_advantages:
            advantage = (advantage - whole.mean) / whole.deviation
        log_ratio = (likely.chosen - read.log_prob) * read.acts
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - learner.clip, 1.0 + learner.clip)
        free, bound = ratio * advantage, clipped * advantage
        slope = free * (free <= bound) * read.acts / -whole.acted
        weight = read.acts * (learner.entropy_weight / whole.acted)
        self._actor.backward(likely.descend(slope, weight))
        errors = value() if beside is None else beside.result()
        unexplained = (read.advantage - whole.error).square() * read.earns
        sums = torch.stack(
            [
                torch.minimum(free, bound) * read.acts,
                errors,
                likely.entropy * read.acts,
                ratio - 1.0 - log_ratio,
                (clipped != ratio).to(ratio.dtype),
                unexplained,
            ]
        ).sum(1)
        statistics = self._statistics(
            sums.tolist(), whole, share=int(read.earns.sum()) / whole.count
        )
        return learner.sealed(
            self._gradient.numpy(), statistics, {}, own=self._own, nets=self._nets
        )

    def _value_errors(self, read: Read, whole: WholeMinibatch) -> Tensor:
        """Return the squared errors of values, shape (C,), after both passes of their network."""
        mean, deviation = self._learner.scale(self._own, self._nets, whole)
        factor, reach = self._learner.value_weight / whole.count, self._learner.value_clip
        with torch.no_grad():  # which is a thread's own
            values = self._critic.forward(read.value_inputs)[0]
            before = (read.value - mean) / deviation
            returns = (read.advantage + read.value - mean) / deviation
            slope = values - returns
            errors = slope.square()
            if reach:
                moved = values - before
                near = before + moved.clamp(-reach, reach) - returns
                held = near.square()
                slope = torch.where(held > errors, near * (moved.abs() <= reach), slope)
                errors = torch.maximum(errors, held)
            self._critic.backward((slope * read.earns * factor)[None])
        return errors * read.earns

    def _vectors(self, outputs: Tensor, read: Read) -> Likelihood:
        """Return the likelihood of actions that are vectors, whose own gradient is by autograd."""
        own, policy = self._own, self._policy
        with torch.enable_grad():
            leaves = [outputs.t().contiguous().requires_grad_()]
            if isinstance(policy, GaussianPolicy):
                leaves.append(policy.log_deviation.detach().requires_grad_())
            found = likelihood(own, leaves, ~read.barred.t(), read.action)

        def descend(slope: Tensor, weight: Tensor) -> Tensor:
            gradient, *rest = torch.autograd.grad(found, leaves, [slope, -weight])
            for of_deviations in rest:
                self._of_deviation.copy_(of_deviations)
            return gradient.t().contiguous()

        return Likelihood(found[0].detach(), found[1].detach(), descend)

    def _statistics(
        self, sums: Sequence[float], whole: WholeMinibatch, *, share: Number
    ) -> Statistics:
        """Return a unit's share of the statistics, from its sums over columns."""
        gained, errors, entropy, divergence, clipped, unexplained = sums
        variance = whole.target_deviation**2 or 1.0
        return {
            "policy_loss": -gained / whole.acted,
            "value_loss": errors / whole.count / 2,
            "entropy": entropy / whole.acted,
            "approx_kl": divergence / whole.acted,
            "clipfrac": clipped / whole.acted,
            "explained_variance": share - unexplained / whole.count / variance,
            "target_mean": share * whole.target_mean,
            "target_deviation": share * whole.target_deviation,
        }


def likelihood(
    own: GroupMembers, outputs: Sequence[Tensor], available: Tensor, action: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the log-likelihood and the entropy of actions that are vectors, shape (C,).

    Args:
        own: Members of the group.
        outputs: Outputs of the policy, shape (C, A), and logarithms of deviations, if there are.
        available: Mask of the actions that may be chosen, shape (C, A).
        action: Entries of the actions, shape (C, A).
    """
    means, *deviations = outputs
    if own.box is not None:
        both = torch.cat([means, deviations[0].expand_as(means)], -1)
        return clipped_gaussian(both, action, own.box)
    assert isinstance(own.vector, MultiDiscrete)
    return categoricals(means, available, action, own.vector.choices)


def categorical(logits: Tensor, read: Read) -> Likelihood:
    """Return the likelihood of discrete actions; overwrites the logits, shape (A, C)."""
    logits.masked_fill_(read.barred, UNAVAILABLE)
    every = logits.sub_(logits.amax(0))
    likely = every.exp()
    total = likely.sum(0)
    likely.div_(total)
    every.sub_(total.log_())
    entropy, place = (likely * every).sum(0).neg_(), read.action[None]

    def descend(slope: Tensor, weight: Tensor) -> Tensor:
        gradient = every.add_(entropy).mul_(weight).sub_(slope).mul_(likely)
        return gradient.scatter_add_(0, place, slope[None])

    return Likelihood(every.gather(0, place)[0], entropy, descend)


class FusedPPO:
    """Gradients of L by micro-batch; implements ``Gradients``.

    Args:
        learner: States the losses.
        members: Members of each group.
        nets: Networks at the broadcast parameters.
        problem: Units, their sizes, and the layout of a row.
    """

    def __init__(
        self, learner: "PPO", members: Sequence[GroupMembers], nets: Networks, problem: Problem
    ) -> None:
        layout = problem.episodes
        assert layout is not None  # on-policy teams learn from episodes
        self._parts, self._problem, self._layout = learner.parts, problem, layout
        self._passes = {own.agents: GroupPasses(learner, own, nets, layout) for own in members}
        self._executor: Executor | None = None

    def run_beside(self, executor: Executor) -> None:
        """Compute the values' passes on a thread; see ``Divided.run_beside``."""
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
        """Compute u_i for each requested unit, one after another; see ``Gradients.compute``.

        Only one call may be active: a newer call reuses the buffers of an older one.
        """
        places, length = episodes_in(batch, self._layout.length), self._layout.length

        @lru_cache(1)  # whose arrays the next one overwrites
        def read(agents: tuple[int, ...], part: range) -> Read:
            rows = batch[places[part[0]].start : places[part[-1]].stop]
            return self._passes[agents].read(rows[rows[:, length] == 0.0])

        @cache
        def whole(agents: tuple[int, ...]) -> WholeMinibatch:
            every = read(agents, range(len(places)))
            return WholeMinibatch.of(every.advantage, every.value, every.acts, every.earns)

        for unit in units:
            agents, number = self._problem.units[unit]
            check_cancelled()
            if not (part := self._parts[number]):
                yield unit, np.zeros(self._problem.unit_sizes[unit], np.float32)
                continue
            with kernels.DEFAULT.selected(), torch.no_grad():
                facts = whole(agents)
                update = self._passes[agents].update(read(agents, part), facts, self._executor)
            yield unit, update

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return kernels.fingerprint(kernels.DEFAULT, torch.device("cpu"))
