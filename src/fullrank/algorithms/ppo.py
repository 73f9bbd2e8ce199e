"""Proximal policy optimisation of teams, over whole episodes.

Each group of agents that share networks has a policy pi(a | o) and a value V. A collection is
played with the parameters theta_old; where it is played, each step is given the log-probability of
its actions, the value V_old and the generalised advantage A [Schulman16]. The collection is then
passed over ``epochs`` times in minibatches, each of which is an update along the gradient of
[Schulman17]

    L = L_policy + value_weight L_value - entropy_weight H

    L_policy = - mean of min(rho A, clip(rho, 1 - clip, 1 + clip) A),   rho = pi(a | o) / pi_old
    L_value  = 1/2 mean of max((V - R)^2, (V_old + clip(V - V_old, -clip, clip) - R)^2)
    R        = A + V_old

The means of L_policy and of the entropy H run over the steps of the minibatch in which an agent of
the group had a choice, that of L_value over all its steps and agents, also those that are out of
the game, whose value is that of what the others still earn them. A in L_policy has mean 0 and
deviation 1 over the steps of the minibatch in which the group's agents had a choice, as in
CleanRL's PPO: every unit reads the whole minibatch for it.

A unit is a group and one of M micro-batches: ceil(B / M) consecutive episodes of the minibatch. Its
update is the gradient of their share of L, scaled by 2^(-6 - e) with e the exponent of the group's
sums, and clamped to 1/2; an iteration recovers the sum over the micro-batches of each group, which
is gradient coding [Tandon17]. The controller undoes the scale, clips the norm of each group's sum
and steps Adam. The unit's share of the statistics, under CleanRL's names, follows its gradient.
V is the output of a network in units of the moving mean and deviation of R, in which L_value is
computed; the controller moves these along the statistics.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.autograd import AutogradGradients
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.groups import (
    Networks,
    Sharing,
    groups_of,
    initial_parameters,
    problem_of,
)
from fullrank.algorithms.on_policy import (
    ENTRIES,
    GroupMembers,
    Steps,
    ValueScale,
    WholeMinibatch,
    advantages,
    members_of,
    minibatch,
    rescale,
)
from fullrank.algorithms.optimiser import SumOptimiser
from fullrank.algorithms.policies import (
    PolicyActor,
    categorical,
    clipped_gaussian,
    over_episodes,
    policy_of,
)
from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.roles import Algorithm
from fullrank.algorithms.trajectories import SCALE
from fullrank.algorithms.updates import Statistics
from fullrank.codes.targets import LIMIT
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments.base import Continuous
from fullrank.networks.adam import Adam
from fullrank.networks.fused import kernels
from fullrank.networks.modules import perceptron
from fullrank.networks.value_networks import RecurrentAgent
from fullrank.replay.episodes import EpisodeLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class PPO(ABC):
    """Hyperparameters and roles of PPO's family; the defaults follow [Yu22]."""

    batch_size: int = 4
    """B, number of episodes of a minibatch; it divides those of a collection, which has one of each
    of the ``environment.copies``."""
    epochs: int = 5
    """Passes over a collection, each of which draws every episode once."""
    micro_batches: int = 4
    """M, number of units of each group, into which the B episodes are split; independent of the
    learners."""
    hidden: int = 64
    """Width of the two hidden layers of policies and values, or of the hidden layer and of the
    recurrent state."""
    recurrent: bool = False
    """Give policies and values a recurrent state, their memory of an episode's earlier steps."""
    learning_rate: float = 5e-4
    """Learning rate of Adam."""
    anneal_iterations: int = 0
    """Number of iterations over which the learning rate falls linearly to 0; 0: it is constant."""
    epsilon: float = 1e-5
    """Term added to the root of the mean square in Adam."""
    clip_norm: float = 10.0
    """L2 norm to which the gradient of each group's networks is clipped."""
    discount: float = 0.99
    """Discount factor, gamma."""
    trace: float = 0.95
    """Weight lambda of longer returns in the advantages."""
    clip: float = 0.2
    """Distance from 1 at which the ratio of probabilities is clipped."""
    value_clip: float = 0.2
    """Distance from the value of before at which the value is clipped in its loss; 0: it is not."""
    value_weight: float = 0.5
    """Weight of the value's loss."""
    entropy_weight: float = 0.01
    """Weight of the policy's entropy, which is to stay large."""
    normalise_values: bool = True
    """Let the value's network give the difference from the mean of what it is to be, in units of
    its deviation, both moving averages; ``value_clip`` and the value's loss are in these units."""
    normalise_advantages: bool = True
    """Give the advantages of a minibatch mean 0 and deviation 1 in the policy's loss."""
    identity: bool = True
    """Give an agent that shares networks its place among those that do as input, one-hot."""
    reward: Literal["own", "team"] = "own"
    """Reward from which an agent learns: ``own``, that of the agent; ``team``, that of all agents
    together, who are one side then."""
    share: Sharing = "all"
    """Agents that share a policy and a value: ``all``; ``side``, those of a side; ``none``; or a
    table of groups with the names of their agents. Smaller observations and fewer actions are
    padded."""

    def __post_init__(self) -> None:
        if min(self.batch_size, self.epochs, self.hidden) < 1:
            raise ConfigError("algorithm.batch_size, epochs and hidden must be at least 1")
        if not 1 <= self.micro_batches <= self.batch_size:
            raise ConfigError(
                f"algorithm.micro_batches = {self.micro_batches} must lie between 1 and "
                f"algorithm.batch_size = {self.batch_size}"
            )
        if min(self.clip_norm, self.clip) <= 0:
            raise ConfigError("algorithm.clip_norm and algorithm.clip must be above 0")
        if min(self.anneal_iterations, self.value_clip) < 0:
            raise ConfigError("algorithm.anneal_iterations and value_clip must not be below 0")

    @abstractmethod
    def value_inputs(self, layout: EpisodeLayout, own: GroupMembers) -> int:
        """Return the number of entries that the value of a group sees for each member."""

    @abstractmethod
    def value_sees(self, steps: Steps, own: GroupMembers) -> Tensor:
        """Return what the value of a group sees, shape (rows, members, entries)."""

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        """Return the layout of a step, with what is derived of it where it is played."""
        agents, own = environment.agents, self.reward == "own"
        continuous = [isinstance(agent.action, Continuous) for agent in agents]
        actions = tuple(agent.action.size for agent in agents)
        return EpisodeLayout(
            observation_sizes=tuple(agent.observation_size for agent in agents),
            action_sizes=actions,
            state_size=environment.state_size,
            own_rewards=own,
            continuous=tuple(np.multiply(actions, continuous).tolist()) if any(continuous) else (),
            derived=tuple((name, len(agents)) for name in ("log_prob", "value", "advantage")),
        )

    def members(self, environment: EnvironmentSpec) -> tuple[GroupMembers, ...]:
        """Return the members of each group.

        Raises:
            ConfigError: Actions of a group are of several kinds, or groups are not of all agents.
        """
        return tuple(
            members_of(environment.agents, agents, identity=self.identity)
            for agents in groups_of(self.share, environment.agents)
        )

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build the policy and the value of an agent's group."""
        own = next(each for each in self.members(environment) if agent in each.agents)
        seen = self.value_inputs(self.layout(environment), own)
        build = RecurrentAgent if self.recurrent else perceptron
        return {
            "policy": policy_of(own, build, hidden=self.hidden),
            "value": build(own.width(seen), self.hidden, 1),
            "scale": ValueScale(),
        }

    def losses(
        self, own: GroupMembers, nets: Networks, steps: Steps, whole: WholeMinibatch
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute a unit's share of the loss of a group's networks, and of the statistics.

        Args:
            own: Members of the group.
            nets: All networks.
            steps: The unit's steps.
            whole: Facts of the whole minibatch.
        """
        log_prob, entropy, value = self.judged(own, nets, steps)
        agents = list(own.agents)
        acts = steps.acts[:, agents]
        before, value_before, error = (
            steps.derived[name][:, agents] for name in ("log_prob", "value", "advantage")
        )
        advantage, returns = error, error + value_before
        if self.normalise_advantages:
            advantage = (error - whole.mean) / whole.deviation
        log_ratio = (log_prob - before) * acts
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - self.clip, 1.0 + self.clip)
        gained = torch.minimum(ratio * advantage, clipped * advantage)
        share, variance = error.numel() / whole.count, whole.target_deviation**2
        unexplained = (error - whole.error).square().sum() / whole.count / (variance or 1.0)
        mean, deviation = self.scale(own, nets, whole)
        errors = self.value_errors(
            value, (value_before - mean) / deviation, (returns - mean) / deviation
        )
        statistics = {
            "policy_loss": -(gained * acts).sum() / whole.acted,
            "value_loss": errors.sum() / whole.count / 2,
            "entropy": (entropy * acts).sum() / whole.acted,
            "approx_kl": (ratio - 1.0 - log_ratio).sum() / whole.acted,
            "clipfrac": (clipped != ratio).sum() / whole.acted,
            "explained_variance": share - unexplained,
        }
        loss = statistics["policy_loss"] + self.value_weight * statistics["value_loss"]
        loss = loss - self.entropy_weight * statistics["entropy"]
        found: dict[str, float | Tensor] = {
            "target_mean": share * whole.target_mean,
            "target_deviation": share * whole.target_deviation,
        }
        found |= {name: each.detach() for name, each in statistics.items()}
        return {"policy": loss, "value": loss}, found

    def scale(
        self, own: GroupMembers, nets: Networks, whole: WholeMinibatch | None = None
    ) -> tuple[float, float]:
        """Return mean and deviation of what a value is to be, after a minibatch if given."""
        scale = nets.scale[own.agents[0]]
        assert isinstance(scale, ValueScale)
        averages = scale.averages.detach().cpu().numpy().astype(np.float64)
        if whole is not None and self.normalise_values:
            averages = ValueScale.moved(averages, whole.target_mean, whole.target_deviation)
        return ValueScale.of(averages)

    def value_errors(self, value: Tensor, before: Tensor, returns: Tensor) -> Tensor:
        """Return the squared errors of values, the greater one of clipped and not."""
        errors = (value - returns).square()
        if not self.value_clip:
            return errors
        near = before + (value - before).clamp(-self.value_clip, self.value_clip)
        return torch.maximum(errors, (near - returns).square())

    def judged(
        self, own: GroupMembers, nets: Networks, steps: Steps
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the members' log-probabilities, entropies and values, shape (rows, members).

        Values are in units of their scale.
        """
        first, agents = own.agents[0], list(own.agents)
        seen = own.inputs(steps.observation[:, agents, : own.observation])
        outputs = over_episodes(nets.policy[first], seen, steps.lengths)
        if own.box is None:
            available = steps.available[:, agents, : own.actions]
            chosen, entropy = categorical(outputs, available, steps.action[:, agents])
        else:
            taken = steps.entries[:, agents, : own.actions]
            chosen, entropy = clipped_gaussian(outputs, taken, own.box)
        seen = own.inputs(self.value_sees(steps, own))
        values = over_episodes(nets.value[first], seen, steps.lengths)[..., 0]
        return chosen, entropy, values

    def prepare(
        self,
        rows: FloatArray,
        nets: Networks,
        groups: tuple[GroupMembers, ...],
        layout: EpisodeLayout,
    ) -> None:
        """Fill log-probabilities, values and advantages of one episode, played with ``nets``."""
        columns, device = layout.columns, next(nets.policy[0].parameters()).device
        steps = Steps([rows], layout, device=device)
        value = np.empty((len(rows), layout.agents), np.float32)
        log_prob = np.empty_like(value)
        with kernels.DEFAULT.selected(), torch.no_grad():
            for own in groups:
                found, _, values = self.judged(own, nets, steps)
                log_prob[:, own.agents] = (found * steps.acts[:, list(own.agents)]).cpu().numpy()
                mean, deviation = self.scale(own, nets)
                value[:, own.agents] = (mean + deviation * values).cpu().numpy()
        team = np.broadcast_to(rows[:, layout.reward, None], value.shape)
        rows[:-1, columns["log_prob"]] = log_prob[:-1]
        rows[:-1, columns["value"]] = value[:-1]
        rows[:-1, columns["advantage"]] = advantages(
            (rows[:, layout.rewards] if layout.own_rewards else team)[:-1],
            1.0 - rows[:-1, layout.terminated, None],
            value,
            discount=self.discount,
            trace=self.trace,
        )

    @property
    def parts(self) -> tuple[range, ...]:
        """Return the numbers of each micro-batch's episodes; the last may have fewer, or none."""
        every, width = range(self.batch_size), -(-self.batch_size // self.micro_batches)
        return tuple(every[part * width :][:width] for part in range(self.micro_batches))

    def rate(self, iterations: int) -> float:
        """Return the learning rate after a number of committed iterations."""
        last = self.anneal_iterations
        return self.learning_rate * (1.0 - min(1.0, iterations / last) if last else 1.0)

    def data_mode(self) -> DataMode:
        """Return the origin of the minibatch: each episode of a collection once an epoch."""
        return DataMode(batch_size=self.batch_size, epochs=self.epochs)

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes without allocating parameters.

        Raises:
            ConfigError: Agents of a group differ, or the groups are not of all agents.
        """
        layout = self.layout(environment)
        problem = problem_of(
            tuple(own.agents for own in self.members(environment)),
            partial(self.networks, environment),
            reads=lambda agent: [(role, agent) for role in ("policy", "value", "scale")],
            micro_batches=self.parts,
            entries=ENTRIES.size,
            row_size=layout.row_size,
            data=self.data_mode(),
            episodes=layout,
        )
        values = tuple(
            section.id for section in problem.sections if section.role in ("value", "scale")
        )
        return replace(problem, prepared_by=values, items=None)

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build all four roles."""
        where, members = device_of(device), self.members(environment)
        networks, layout = partial(self.networks, environment), self.layout(environment)
        problem, groups = self.problem(environment), tuple(own.agents for own in members)
        parameters = initial_parameters(networks, groups, seed=seed, device=where)
        nets = Networks(networks, groups, parameters)
        by_agents = {own.agents: own for own in members}
        return Algorithm(
            problem=problem,
            parameters=parameters,
            gradients=AutogradGradients(
                lambda agents, nets, batch, draws: self.losses(by_agents[agents], nets, *batch),
                nets,
                problem,
                batch_of=partial(minibatch, self.parts, problem, layout, device=where),
                seal=lambda gradient, statistics, batch, agents: ENTRIES.after(
                    np.clip(
                        gradient * np.float32(SCALE * nets.factor_of(agents[0])), -LIMIT, LIMIT
                    ),
                    statistics,
                ),
                agents=environment.agents,
                seed=seed,
                device=where,
            ),
            optimiser=SumOptimiser(
                parameters,
                Adam(learning_rate=self.learning_rate, target_rate=0.0, epsilon=self.epsilon),
                entries=ENTRIES,
                scale=SCALE,
                clip_norm=self.clip_norm,
                target_every=1,
                rate=self.rate,
                moved=rescale if self.normalise_values else None,
            ),
            actor=PolicyActor(
                environment.agents,
                nets,
                members,
                state=self.hidden if self.recurrent else 0,
                seed=seed,
            ),
            prepare=lambda rows: self.prepare(rows, nets, members, layout),
        )
