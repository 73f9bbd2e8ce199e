"""Actor-critics of M agents, written as modules and losses.

A subclass defines an agent's networks and their losses; the four roles follow. Unit i is the update
of agent i: u_i = [gradient of each network's loss at that network]. Every loss is one autograd call
for one unit, so that its bits do not depend on the other units computed with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fullrank.algorithms.autograd import (
    AutogradGradients,
    BatchOf,
    ModuleActor,
    Networks,
    initial_groups,
    shared_batches,
)
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.draws import Draws
from fullrank.algorithms.optimiser import AdamOptimiser
from fullrank.algorithms.parts import AgentGradients, PartGradients, Parts
from fullrank.algorithms.problem import DataMode, Problem, Section, Unit
from fullrank.algorithms.roles import Algorithm, Gradients
from fullrank.common.errors import ConfigError
from fullrank.networks.adam import Adam
from fullrank.networks.fused.clip import mark_vanished
from fullrank.networks.fused.gradients import LossWeights
from fullrank.networks.modules import flat_size, views
from fullrank.networks.parameters import GroupedParameters, ParameterGroup, roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """Hyperparameters of actor-critics, by default those of [Wang21] and [DARL1N]."""

    batch_size: int = 1024
    """B, number of transitions over which an update averages."""
    hidden: int = 64
    """Width of the hidden layers of policies and critics."""
    learning_rate: float = 0.01
    """Learning rate of Adam, for policies and critics."""
    discount: float = 0.95
    """Discount factor, gamma."""
    target_rate: float = 0.01
    """Weight of the new parameters in the targets (1 - tau in the notation of [Wang21])."""
    clip_norm: float = 0.5
    """L2 norm to which each variable's gradient is clipped."""
    logit_penalty: float = 1e-3
    """Weight of the mean square of the policy's outputs in its loss."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on continuous actions, as a share of half the range."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.hidden < 1:
            raise ConfigError("algorithm.batch_size and algorithm.hidden must be at least 1")
        if self.clip_norm <= 0:
            raise ConfigError("algorithm.clip_norm must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorCritic(Hyperparameters, ABC):
    """Base of algorithms in which every agent has its own networks; see ``AlgorithmConfig``."""

    @abstractmethod
    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build an agent's networks by role; ``policy`` acts, targets follow by averaging."""

    @abstractmethod
    def losses(self, agent: int, nets: Networks, batch: Any, draws: Draws) -> Mapping[str, Tensor]:
        """Compute the scalar loss of each of an agent's networks; omitted roles get no gradient.

        Args:
            agent: Index of the agent.
            nets: All networks, by role: ``nets.policy[k]``, ``nets.target_critic[k]``, ...
            batch: ``Transitions``, unless ``batch_of`` supplies another type.
            draws: Keyed random numbers.
        """

    def reads(self, environment: EnvironmentSpec, agent: int) -> Iterable[tuple[str, int]]:
        """List role and agent of all networks that an agent's losses read, by default every one."""
        every = range(len(environment.agents))
        return [(role, k) for role in roles(self.networks(environment, agent)) for k in every]

    def parts(self) -> Parts | None:
        """Return the parts of a minibatch that are units; by default None, a unit is an agent."""
        return None

    def data_mode(self) -> DataMode:
        """Return the origin of the transitions, by default one minibatch for all units."""
        return DataMode(batch_size=self.batch_size)

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes without allocating parameters."""
        every = range(len(environment.agents))
        with torch.device("meta"):
            networks = [self.networks(environment, agent) for agent in every]
            reads = [self.reads(environment, agent) for agent in every]
        sizes = [{role: flat_size(net) for role, net in by_role.items()} for by_role in networks]
        ids = {pair: id_ for id_, pair in enumerate(sections_of(networks[0], len(networks)))}
        problem = Problem(
            units=tuple(map(Unit, every)),
            unit_sizes=tuple(sum(by_role.values()) for by_role in sizes),
            sections=tuple(
                Section(
                    id=id_, role=role, owner=agent, size=sizes[agent][role.removeprefix("target_")]
                )
                for (role, agent), id_ in ids.items()
            ),
            reads=tuple(tuple(sorted({ids[pair] for pair in pairs})) for pairs in reads),
            row_size=environment.layout.row_size,
            data=self.data_mode(),
            masked=environment.masked,
            transitions=environment.layout,
        )
        parts = self.parts()
        return problem if parts is None else parts.split(problem)

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build all four roles on modules and autograd."""
        where = device_of(device)
        groups = initial_groups(
            partial(self.networks, environment), len(environment.agents), seed, where
        )
        parameters = self.parameters(environment, groups)
        nets = Networks(partial(self.networks, environment), parameters)
        gradients = self.autograd(environment, nets, seed=seed, device=where)
        actor = ModuleActor(environment.agents, nets, noise=self.exploration_noise, seed=seed)
        return Algorithm(
            problem=self.problem(environment),
            parameters=parameters,
            gradients=self.by_part(gradients, environment),
            optimiser=self.optimiser(environment, parameters),
            actor=actor,
        )

    def by_part(self, gradients: AgentGradients, environment: EnvironmentSpec) -> Gradients:
        """Return the learner's role: the given one, or the same over parts of the minibatch."""
        parts, alive = self.parts(), environment.layout.alive
        return gradients if parts is None else PartGradients(gradients, parts, alive=alive)

    def autograd(
        self,
        environment: EnvironmentSpec,
        nets: Networks,
        *,
        seed: int,
        device: torch.device,
        batch_of: BatchOf | None = None,
    ) -> AutogradGradients:
        """Build gradients of the losses, of a whole minibatch or of its parts."""
        parts = self.parts()
        weight = None if parts is None else parts.weight
        return AutogradGradients(
            self.losses,
            nets,
            batch_of or shared_batches(environment, device, weight=weight),
            environment.agents,
            clip_norm=self.clip_norm if self.data_mode().exact and parts is None else None,
            keyed_by_row=not self.data_mode().exact,
            seed=seed,
            device=device,
        )

    def parameters(
        self, environment: EnvironmentSpec, groups: Sequence[ParameterGroup]
    ) -> GroupedParameters:
        """Arrange the parameters of all agents by section."""
        pairs = sections_of(groups[0].networks, len(environment.agents))
        return GroupedParameters(groups, pairs)

    def optimiser(
        self, environment: EnvironmentSpec, parameters: GroupedParameters
    ) -> AdamOptimiser:
        """Build the optimiser: Adam with Polyak-averaged targets.

        It clips where learners cannot: what they send is summed, or drawn by each.
        """
        weighted = self.parts() is not None
        return AdamOptimiser(
            parameters,
            Adam(learning_rate=self.learning_rate, target_rate=self.target_rate),
            clip=self.clip_of(environment) if weighted or not self.data_mode().exact else None,
            variables=self.variables(environment),
            weighted=weighted,
        )

    def variables(
        self, environment: EnvironmentSpec
    ) -> Callable[[ParameterGroup, Tensor], Iterator[tuple[str, Tensor]]]:
        """Return a function that yields the variables in a row of a group, and their networks."""
        with torch.device("meta"):
            networks = [self.networks(environment, k) for k in range(len(environment.agents))]

        def variables(group: ParameterGroup, row: Tensor) -> Iterator[tuple[str, Tensor]]:
            for role, network in networks[group.agents[0]].items():
                for _, variable in views(network, row[group.networks[role]]):
                    yield role, variable.view(-1) if variable.dim() < 1 else variable

        return variables

    def clip_of(self, environment: EnvironmentSpec) -> Callable[[ParameterGroup, Tensor], None]:
        """Return a function that clips a group's gradients variable by variable, in place."""
        variables = self.variables(environment)

        def clip(group: ParameterGroup, gradients: Tensor) -> None:
            for gradient in gradients:
                for _, variable in variables(group, gradient):
                    clip_to(self.clip_norm, variable)

        return clip


def clip_to(norm: float, variable: Tensor) -> None:
    """Scale a gradient in place by min(1, norm / its length), with bits that threads do not change.

    A reduction to one number is split among threads; one along rows is not.
    """
    by_row = torch.linalg.vector_norm(variable.reshape(len(variable), -1), dim=1)
    scale = norm / torch.linalg.vector_norm(by_row).clamp_min(norm)
    mark_vanished(variable.mul_(scale), scale)


def sections_of(networks: Mapping[str, object], agents: int) -> list[tuple[str, int]]:
    """List role and agent of every section, ordered by role and then by agent."""
    return [(role, agent) for role in roles(networks) for agent in range(agents)]


def loss_weights(config: Hyperparameters, parts: Parts | None = None) -> LossWeights:
    """Return the hyperparameters of the hand-written updates, of a minibatch or of its parts."""
    return LossWeights(
        batch_size=config.batch_size if parts is None else len(parts.ranges[-1]),
        discount=config.discount,
        clip_norm=config.clip_norm if parts is None else None,
        logit_penalty=config.logit_penalty,
        transition=None if parts is None else parts.weight,
    )
