"""The learner of a container: a head and a mixer of its own over the trunk of the centraliser.

The trunk, the layers of the agents' network below the last one, is read and never learned here. The
head, which is the last layer, and the mixing networks minimise the temporal differences of the
container's own episodes and a term by which heads act differently after equal histories [CMARL].
With pi_j the softmax of the action values of head j, container c has the term

    weight [mean over steps and agents of KL(pi_c || 1 / N sum_j pi_j) - target]^2

The divergence is 0 where all heads are equal, and at most log N. Padding never counts.

Differences from the paper:

- Double Q-learning, and the update rule of the centraliser.
- The divergence of eq. 8 is a mean over steps and agents, as in the authors' program, whose are
  beta = 0.2 and lambda = 0.05; the printed sum over them is above lambda with untrained heads, so
  that its term would draw containers together. Policies are softmaxes of available actions alone,
  and a container's own has no temperature (the program's: 0.8).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.action_values import episode_layout
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.sum_optimiser import SumOptimiser
from fullrank.algorithms.trajectories import Trajectories
from fullrank.algorithms.updates import Statistics
from fullrank.algorithms.values import ValueLearner, rule_of
from fullrank.common.types import FloatArray
from fullrank.networks.fused import kernels
from fullrank.networks.modules import bind, flat_size, views
from fullrank.networks.value_networks import FeedForwardAgent, RecurrentAgent
from fullrank.replay.episodes import episodes_in

AGENT, TARGET_AGENT = "agent", "target_agent"

NEVER = -1e9
"""Value of an action that is not available: its probability is exactly 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """The term of eq. 8."""

    weight: float = 0.2
    """Factor beta of the term."""
    target: float = 0.05
    """Divergence lambda that the term aims at."""

    def mean_divergence(self, values: Tensor, batch: Trajectories) -> Tensor:
        """Return the divergence of the first head from the mean of all, a scalar.

        Args:
            values: Values of all actions by each head, the container's own first, shape
                (N, L + 1, K, n, A).
            batch: The episodes.
        """
        team = divergence(values[:, :-1], batch.available[:-1]).mean(2)
        counted = batch.valid.to(team.dtype)
        return (team * counted).sum() / counted.sum()

    def penalty(self, mean_divergence: Tensor) -> Tensor:
        """Return the term of the loss, a scalar."""
        return self.weight * (mean_divergence - self.target).square()


def divergence(values: Tensor, available: Tensor) -> Tensor:
    """Return KL(pi_0 || mean of all pi_j) of each agent and step, shape (...).

    Args:
        values: Values of all actions by each of N heads, shape (N, ..., A).
        available: Mask of actions, shape (..., A); where there is none, the divergence is 0.
    """
    policies = values.masked_fill(~available, NEVER).log_softmax(-1)
    mean = policies.logsumexp(0) - math.log(len(values))
    return (policies[0].exp() * (policies[0] - mean)).sum(-1)


class ContainerLearner:
    """Learns from the episodes of one container.

    Args:
        learner: Losses and hyperparameters, those of the centraliser.
        environment: Agents of the environment.
        diversity: Term that keeps containers apart; None: temporal differences alone.
        seed: Fixes the initial head and mixer.
        device: ``auto``, ``cpu`` or ``cuda``.

    Attributes:
        layout: Layout of a row.
        head_size: Entries of a head.
        updates: Number of updates so far.
    """

    def __init__(
        self,
        learner: ValueLearner,
        environment: EnvironmentSpec,
        *,
        diversity: Diversity | None,
        seed: int,
        device: str,
    ) -> None:
        self._learner, self._diversity = learner, diversity
        self._device, self.layout = device_of(device), episode_layout(environment)
        self._nets = learner.initial(environment, seed=seed, device=self._device)
        self._parameters = self._nets.parameters
        self._optimiser = SumOptimiser(
            self._parameters,
            rule_of(learner),
            entries=learner.entries,
            scale=1.0,
            clip_norm=learner.clip_norm,
            target_every=learner.target_every,
        )
        self._network = _agent(self._nets)
        self.head_size, self.updates = flat_size(self._network.fc2), 0

    @property
    def acting(self) -> FloatArray:
        """Return a copy of the network that acts, trunk and head, as the centraliser's section."""
        (group,) = self._parameters.groups
        return group.view(0, AGENT).copy()

    @property
    def head(self) -> FloatArray:
        """Return a copy of the head, flat [W | b]."""
        return self.acting[-self.head_size :]

    def take_trunk(self, network: FloatArray) -> None:
        """Replace the trunk, also that of the target network, by the centraliser's.

        Args:
            network: The centraliser's network, of which the head is ignored.
        """
        self._write(slice(-self.head_size), network[: -self.head_size])

    def take_head(self, head: FloatArray, *, updates: int) -> None:
        """Replace the head, also that of the target network, by one of that many updates."""
        self._write(slice(-self.head_size, None), head)
        self.updates = updates

    def _write(self, part: slice, values: FloatArray) -> None:
        (group,) = self._parameters.groups
        for role in (AGENT, TARGET_AGENT):
            group.view(0, role)[part] = values
        self._parameters.written()

    def update(self, rows: FloatArray, others: Sequence[FloatArray]) -> Mapping[str, float]:
        """Take one step along the gradient of the loss.

        Args:
            rows: All rows of the episodes of the minibatch, one after the other.
            others: Heads of the other containers.

        Returns:
            Statistics of the centraliser's step, and the ``divergence`` of eq. 8 with others.
        """
        rows = self._learner.minibatch(rows, self.layout)
        places = episodes_in(rows, self.layout.length)
        batch = Trajectories.of([rows[place] for place in places], self.layout, device=self._device)
        (group,) = self._parameters.groups
        gradient = torch.zeros(group.size, device=self._device)
        variables = [*self._variables(gradient)]
        with kernels.DEFAULT.selected():
            loss, shares, apart = self.loss(batch, others)
            computed = torch.autograd.grad(loss, [parameter for parameter, _ in variables])
        for part, (_, out) in zip(computed, variables, strict=True):
            out.copy_(part)
        update = np.concatenate([gradient.cpu().numpy(), self._learner.entries.of(shares)])
        statistics = self._optimiser.step(update[None])
        self.updates += 1
        return statistics if apart is None else {**statistics, "divergence": apart.item()}

    def _variables(self, gradient: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return each parameter that is learned, with its place in a flat gradient."""
        (group,) = self._parameters.groups
        trunk = [*self._network.fc1.parameters(), *self._network.rnn.parameters()]
        read = {id(parameter) for parameter in trunk}
        return [
            pair
            for role, columns in group.networks.items()
            for pair in views(getattr(self._nets, role)[0], gradient[columns])
            if id(pair[0]) not in read
        ]

    def loss(
        self, batch: Trajectories, others: Sequence[FloatArray]
    ) -> tuple[Tensor, Statistics, Tensor | None]:
        """Return the loss, its statistics, and the divergence of the heads.

        Args:
            batch: The episodes.
            others: Heads of the other containers; without any there is no divergence.
        """
        learner = self._learner
        with torch.no_grad():
            seen = learner.values(self._network.trunk, batch)
        over = _OverTrunk(self._nets, seen)
        losses, shares = learner.losses(over, batch)
        loss = losses[AGENT]
        if self._diversity is None or not others:
            return loss, shares, None
        heads = [self._network.fc2, *(self._bound(head) for head in others)]
        values = torch.stack([head(seen) for head in heads])
        apart = self._diversity.mean_divergence(values, batch)
        return loss + self._diversity.penalty(apart), shares, apart

    def _bound(self, head: FloatArray) -> nn.Linear:
        """Return another container's head as a layer, which is not learned here."""
        own = self._network.fc2
        layer = nn.Linear(own.in_features, own.out_features, device="meta")
        bind(layer, torch.from_numpy(head.copy()).to(self._device))
        return layer.requires_grad_(False)


def _agent(nets: Networks, role: str = AGENT) -> RecurrentAgent | FeedForwardAgent:
    network = getattr(nets, role)[0]
    assert isinstance(network, RecurrentAgent | FeedForwardAgent)
    return network


class _Over(nn.Module):
    """A head over the trunk's outputs, in place of the whole network."""

    def __init__(self, head: nn.Module, seen: Tensor) -> None:
        super().__init__()
        self._head, self._seen = head, seen.flatten(1, 2)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of all actions in all steps."""
        return self._head(self._seen), state


class _OverTrunk(Networks):
    """Networks of which the agents' network and its target share the trunk's outputs."""

    def __init__(self, nets: Networks, seen: Tensor) -> None:
        self.parameters = nets.parameters
        self._modules = dict(nets._modules)
        for role in (AGENT, TARGET_AGENT):
            self._modules[role] = [_Over(_agent(nets, role).fc2, seen)]
