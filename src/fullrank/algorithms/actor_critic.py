"""Actor-critics, written as modules and losses.

A subclass defines networks and losses of agents; the four roles follow. Every agent is a group
of its own unless ``groups`` says otherwise. A unit is the update of a group, or its share from one
micro-batch: [gradient of each network's loss at that network]. It is computed by itself, so that
its bits do not depend on the other units computed with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.autograd import AutogradGradients, BatchOf, ModuleActor
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.groups import (
    Groups,
    Networks,
    Sharing,
    groups_of,
    initial_parameters,
    problem_of,
)
from fullrank.algorithms.optimiser import AdamOptimiser
from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.ranges import check_ranges
from fullrank.algorithms.roles import Algorithm
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.updates import Entries, Parts, Statistics
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.common.updates import snap
from fullrank.environments.base import ActionSpec
from fullrank.networks.adam import Adam
from fullrank.networks.fused.gradients import LossWeights, weigh
from fullrank.networks.fused.mlp import mark_vanished
from fullrank.networks.heads import Head, make_head
from fullrank.networks.modules import views
from fullrank.networks.parameters import GroupedParameters, ParameterGroup, roles

Losses = Mapping[str, Tensor] | tuple[Mapping[str, Tensor], Statistics]
"""The scalar loss of each network, by role, and statistics beside them, if there are any."""


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
    share: Sharing = "none"
    """Agents that share networks, which learn from the mean loss over the transitions of all of
    them: ``none``; ``side``, those of a side; ``all``; or a table of groups with the names of their
    agents. Agents that share have equal observations and actions. Shared networks are computed by
    autograd."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.batch_size < 1 or self.hidden < 1:
            raise ConfigError("algorithm.batch_size and algorithm.hidden must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorCritic(Hyperparameters, ABC):
    """Base of actor-critics by their losses; see ``AlgorithmConfig``."""

    @abstractmethod
    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build an agent's networks by role; ``policy`` acts, targets follow by averaging."""

    @abstractmethod
    def losses(self, agent: int, nets: Networks, batch: Any, draws: Draws) -> Losses:
        """Compute the scalar loss of each of an agent's networks; omitted roles get no gradient.

        Args:
            agent: Index of the agent.
            nets: All networks, by role: ``nets.policy[k]``, ``nets.target_critic[k]``, ...
            batch: ``Transitions``, unless ``batch_of`` supplies another type.
            draws: Keyed random numbers.

        Returns:
            The losses, by role; with statistics of the names that ``statistics`` declares, a pair
            of both.
        """

    def statistics(self) -> tuple[str, ...]:
        """Return the names of the statistics beside the losses, by default none."""
        return ()

    def groups(self, environment: EnvironmentSpec) -> Groups:
        """Return the agents that share networks, by default those that ``share`` names.

        Networks of a group learn from the mean loss over the transitions in which its agents act.
        """
        return groups_of(self.share, environment.agents)

    def interface(self, environment: EnvironmentSpec, agent: int) -> Hashable:
        """Return what agents of a group have in common: size of observations, and actions."""
        spec = environment.agents[agent]
        return spec.observation_size, spec.action

    def reads(self, environment: EnvironmentSpec, agent: int) -> Iterable[tuple[str, int]]:
        """List role and agent of all networks that an agent's losses read, by default every one."""
        every = range(len(environment.agents))
        return [(role, k) for role in roles(self.networks(environment, agent)) for k in every]

    @property
    def hand_written(self) -> bool:
        """Return whether hand-written passes restate this class; by default none do.

        A class that has such passes compares ``type(self)`` with itself: a subclass may override
        any of the methods that they restate, and learns by autograd.
        """
        return False

    def is_hand_written(self, environment: EnvironmentSpec) -> bool:
        """Return whether updates are hand-written, which know no networks that agents share."""
        return self.hand_written and all(len(agents) == 1 for agents in self.groups(environment))

    def parts(self) -> Parts | None:
        """Return the parts of a minibatch that are units; by default None, a unit is a group."""
        return None

    def data_mode(self) -> DataMode:
        """Return the origin of the transitions, by default one minibatch for all units."""
        return DataMode(batch_size=self.batch_size)

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes without allocating parameters.

        Raises:
            ConfigError: Agents of a group differ, or one observes nothing.
        """
        if blind := [each.name for each in environment.agents if not each.observation_size]:
            raise ConfigError(
                f"{blind[0]} observes nothing, which actors and critics take no layer for: give it "
                "one entry, such as a constant, or use ippo, mappo, qmix, vdn or iql"
            )
        parts, groups = self.parts(), self.groups(environment)
        for first, agent in ((own[0], agent) for own in groups for agent in own[1:]):
            if self.interface(environment, first) != self.interface(environment, agent):
                names = [environment.agents[k].name for k in (first, agent)]
                raise ConfigError(
                    f"{' and '.join(names)} cannot share networks, because their observations, "
                    "actions or critics differ: choose other groups in algorithm.share"
                )
        return problem_of(
            groups,
            partial(self.networks, environment),
            reads=partial(self.reads, environment),
            micro_batches=() if parts is None else parts.ranges,
            entries=int(parts is not None),
            statistics=Entries(self.statistics()).size,
            row_size=environment.layout.row_size,
            data=self.data_mode(),
            masked=environment.masked,
            transitions=environment.layout,
        )

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build all four roles on modules and autograd."""
        where, groups = device_of(device), self.groups(environment)
        networks = partial(self.networks, environment)
        parameters = initial_parameters(networks, groups, seed=seed, device=where)
        batch_of = self._minibatches(environment, where)
        return self.by_autograd(environment, parameters, batch_of, seed=seed, device=where)

    def by_autograd(
        self,
        environment: EnvironmentSpec,
        parameters: GroupedParameters,
        batch_of: BatchOf,
        *,
        seed: int,
        device: torch.device,
    ) -> Algorithm:
        """Build all four roles on modules and autograd of the losses.

        Args:
            environment: Agents.
            parameters: Networks of all groups.
            batch_of: Supplies the batch of each unit.
            seed: The run's seed.
            device: Device of the parameters.
        """
        problem, exact = self.problem(environment), self.data_mode().exact
        groups = self.groups(environment)
        nets = Networks(partial(self.networks, environment), groups, parameters)
        return Algorithm(
            problem=problem,
            parameters=parameters,
            gradients=AutogradGradients(
                self._of_group,
                nets,
                problem,
                batch_of=batch_of,
                seal=partial(self._sealed, nets),
                agents=environment.agents,
                clip_norm=self.clip_norm if exact and self.parts() is None else None,
                keyed_by_row=not exact,
                seed=seed,
                device=device,
            ),
            optimiser=self.optimiser(environment, parameters),
            actor=ModuleActor(
                environment.agents,
                nets,
                heads=[self.head(agent.action, device) for agent in environment.agents],
                seed=seed,
            ),
        )

    def head(self, action: ActionSpec, device: torch.device) -> Head:
        """Return the head that makes actions of a policy's outputs."""
        return make_head(action, noise=self.exploration_noise, device=device)

    def _of_group(
        self, agents: tuple[int, ...], nets: Networks, batch: Any, draws: Draws
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute the mean of the agents' losses and statistics; in parts, their sum."""
        found = [self.losses(agent, nets, batch, draws) for agent in agents]
        pairs = [each if isinstance(each, tuple) else (each, {}) for each in found]
        if len(pairs) == 1:
            return pairs[0]
        count = 1 if self.parts() else len(pairs)
        losses, statistics = (
            {name: sum(each[name] for each in own) / count for name in own[0]}
            for own in zip(*pairs, strict=True)
        )
        return losses, statistics

    def _minibatches(self, environment: EnvironmentSpec, device: torch.device) -> BatchOf:
        """Supply the minibatch from replay, or the part that is a unit's."""
        parts, groups = self.parts(), self.groups(environment)
        agents, masked = environment.agents, environment.masked

        def load(rows: FloatArray) -> Callable[[UnitIndex, tuple[int, ...]], Transitions]:
            if parts is None:
                whole = Transitions(rows, agents, masked=masked, groups=groups, device=device)
                return lambda unit, key: whole
            weight = self._weight(environment)

            @cache
            def part_of(number: int) -> Transitions:
                own = rows[parts.ranges[number].start : parts.ranges[number].stop]
                return Transitions(own, agents, masked=masked, device=device, weight=weight)

            return lambda unit, key: part_of(unit % parts.count)

        return load

    def _weight(self, environment: EnvironmentSpec) -> float | None:
        """Return the weight of a transition of an agent; None where units are whole updates."""
        parts, most = self.parts(), max(map(len, self.groups(environment)))
        return None if parts is None else replace(parts, batch_size=most * parts.batch_size).weight

    def _sealed(
        self,
        nets: Networks,
        gradient: FloatArray,
        statistics: Statistics,
        batch: Any,
        agents: tuple[int, ...],
    ) -> FloatArray:
        """Return the update: gradient, its weight if it is a part's, and statistics."""
        in_parts, entries = self.parts() is not None, Entries(self.statistics()).of(statistics)
        update = np.concatenate([snap(gradient), np.zeros(int(in_parts), np.float32), entries])
        if in_parts:
            whole = sum(float(batch.weight[agent].sum()) for agent in agents)
            weigh(torch.from_numpy(update), len(gradient), whole, factor=nets.factor_of(agents[0]))
        return update

    def optimiser(
        self, environment: EnvironmentSpec, parameters: GroupedParameters
    ) -> AdamOptimiser:
        """Build the optimiser: Adam with Polyak-averaged targets.

        It clips where learners cannot: what they send is summed, or drawn by each.
        """
        weight = self._weight(environment)
        return AdamOptimiser(
            parameters,
            Adam(learning_rate=self.learning_rate, target_rate=self.target_rate),
            clip=self.clip_of(environment) if weight or not self.data_mode().exact else None,
            variables=self.variables(environment),
            entries=Entries(self.statistics()),
            weight=weight,
        )

    def variables(
        self, environment: EnvironmentSpec
    ) -> Callable[[ParameterGroup, Tensor], Iterator[tuple[str, Tensor]]]:
        """Return a function that yields the variables in a row of a group, and their networks."""
        with torch.device("meta"):
            networks = [self.networks(environment, own[0]) for own in self.groups(environment)]

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


def loss_weights(config: Hyperparameters, parts: Parts | None = None) -> LossWeights:
    """Return the hyperparameters of the hand-written updates, of a minibatch or of its parts."""
    return LossWeights(
        batch_size=config.batch_size if parts is None else len(parts.ranges[-1]),
        discount=config.discount,
        clip_norm=config.clip_norm if parts is None else None,
        logit_penalty=config.logit_penalty,
        transition=None if parts is None else parts.weight,
    )
