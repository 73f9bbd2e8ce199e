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
the group had a choice, that of L_value over its steps and agents. An agent that learns from its own
reward has steps until it leaves the game, and again once it is back: where it reached a terminal
state nothing follows, nor where a time limit came, unless ``time_limit_bootstrap`` asks for the
value of its last state. One that
learns from the team's reward, or from one that all share, has all steps until the episode ends: its
value is that of what the others still earn it. A in L_policy has mean 0 and deviation 1 over the
steps of the minibatch in which the group's agents had a choice, as in CleanRL's PPO: every unit
reads the whole minibatch for it.

V is the output of a network in units of the moving mean and deviation of R, in which L_value is
computed; the controller moves these along the statistics. Units and their sums are those of
``fullrank.algorithms.on_policy_learner``.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.captured import of_steps
from fullrank.algorithms.fused_ppo import FusedPPO
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.likelihoods import categorical, categoricals, clipped_gaussian
from fullrank.algorithms.on_policy import (
    ENTRIES,
    GroupMembers,
    Steps,
    ValueScale,
    WholeMinibatch,
    rescale,
    viewers,
)
from fullrank.algorithms.on_policy_learner import Moved, OnPolicy
from fullrank.algorithms.policies import (
    core_of,
    over_episodes,
    policy_of,
    policy_outputs,
    seeing,
)
from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.roles import Gradients
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.networks.fused.cuda import stays_on
from fullrank.networks.images import (
    Model,
    Seeing,
    above,
    image_of,
    kept,
    name_recurrent,
)
from fullrank.networks.modules import layers_of, perceptron
from fullrank.networks.normalised import Normalising
from fullrank.networks.value_networks import RecurrentAgent
from fullrank.replay.episodes import EpisodeLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class PPO(OnPolicy):
    """Hyperparameters and losses of PPO's family; the defaults follow [Yu22]."""

    epochs: int = 5
    """Passes over a collection, each of which draws every episode once."""
    clip: float = 0.2
    """Distance from 1 at which the ratio of probabilities is clipped."""
    value_clip: float = 0.2
    """Distance from the value of before at which the value is clipped in its loss; 0: it is not."""
    value_weight: float = 0.5
    """Weight of the value's loss."""
    normalise_values: bool = True
    """Let the value's network give the difference from the mean of what it is to be, in units of
    its deviation, both moving averages; ``value_clip`` and the value's loss are in these units."""
    normalise_advantages: bool = True
    """Give the advantages of a minibatch mean 0 and deviation 1 in the policy's loss."""
    model: Model = "auto"
    """Networks: ``mlp``, perceptrons; ``gru``, these with ``recurrent`` set; ``cnn``, convolutions
    below them, of images of bytes, which policy and value share; ``auto``: ``cnn`` where all agents
    observe such images."""
    layer_norm: bool = False
    """Normalise hidden layers before ReLU."""
    normalise_observations: bool = False
    """Give networks observations and states in units of their moving means and deviations, up to
    10 of these."""

    entries: ClassVar[Entries] = ENTRIES
    read: ClassVar[tuple[str, ...]] = ("policy", "value", "scale")
    prepared_by: ClassVar[tuple[str, ...]] = ("value", "scale")
    derived: ClassVar[tuple[str, ...]] = ("log_prob", *OnPolicy.derived)
    vectors: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    """True if a value sees the state."""

    def __post_init__(self) -> None:
        OnPolicy.__post_init__(self)
        name_recurrent(self)
        if self.epochs < 1:
            raise ConfigError("algorithm.epochs must be at least 1")

    @abstractmethod
    def value_inputs(self, layout: EpisodeLayout, own: GroupMembers) -> int:
        """Return the number of entries that the value of a group sees for each member."""

    @abstractmethod
    def value_sees(self, steps: Steps, own: GroupMembers) -> Tensor:
        """Return what the value of a group sees, shape (rows, members, entries)."""

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        """Return the layout of a step; that of images has no other state than they are."""
        return kept(OnPolicy.layout(self, environment), self.model, environment.agents)

    def members(self, environment: EnvironmentSpec) -> tuple[GroupMembers, ...]:
        """Return the members of each group, which observe features of images."""
        image = image_of(self.model, environment.agents)
        return viewers(OnPolicy.members(self, environment), image, features=self.hidden)

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build the policy and the value of an agent's group; the policy has the encoder."""
        own = self.group_of(environment, agent)
        seen = self.value_inputs(self.layout(environment), own)
        build = partial(
            RecurrentAgent if self.recurrent else perceptron, normalised=self.layer_norm
        )
        if own.image is not None and self.normalise_observations:
            raise ConfigError(
                "algorithm.normalise_observations is for numbers, and images have a scale of "
                "their own; set it to false, or algorithm.model to 'mlp'"
            )
        policy = policy_of(own, build, hidden=self.hidden, normalised=self.layer_norm)
        value: nn.Module = build(own.width(seen), self.hidden, 1)
        if self.normalise_observations:
            policy = Normalising(own.observation, policy)
            value = Normalising(seen, value) if self.joint else value
        return {"policy": policy, "value": value, "scale": ValueScale()}

    def seen(self, own: GroupMembers, nets: Networks, steps: Steps) -> Steps:
        """Return steps in which the members, and all agents of a state, observe features."""
        policy, value = nets.policy[own.agents[0]], nets.value[own.agents[0]]
        if isinstance(policy, Normalising):
            state = value.sees(steps.state) if isinstance(value, Normalising) else steps.state
            return steps.seeing(policy.sees(steps.observation), state)
        if not isinstance(policy, Seeing):
            return steps
        return seeing(own, policy, steps, joint=self.joint)

    def moments(
        self, own: GroupMembers, nets: Networks, steps: Steps, whole: WholeMinibatch
    ) -> Mapping[str, FloatArray]:
        """Return a unit's share of the moments of observations, and of states.

        Observations count where their agent had a choice: of one that is out of the game, zeros
        are left.
        """
        agents, found = list(own.agents), dict[str, FloatArray]()
        policy, value = nets.policy[agents[0]], nets.value[agents[0]]
        if isinstance(policy, Normalising):
            shown = steps.observation[:, agents, : own.observation]
            found["policy"] = policy.moments(shown, steps.acts[:, agents, None], float(whole.acted))
        if isinstance(value, Normalising):
            counted, counts = steps.state_counts(whole)
            found["value"] = value.moments(steps.state, counted, counts.numpy())
        return found

    def losses(
        self, own: GroupMembers, nets: Networks, steps: Steps, whole: WholeMinibatch
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute a unit's share of L and of the statistics; see ``OnPolicy.losses``."""
        log_prob, entropy, value = self.computed(own, nets, steps)
        acts, earns = own.among(steps.acts), own.among(steps.earns)
        before, value_before, error = (
            own.among(steps.derived[name]) for name in ("log_prob", "value", "advantage")
        )
        advantage, returns = error, error + value_before
        if self.normalise_advantages:
            advantage = (error - whole.mean) / whole.deviation
        log_ratio = (log_prob - before) * acts
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - self.clip, 1.0 + self.clip)
        gained = torch.minimum(ratio * advantage, clipped * advantage)
        shares = whole.shares(earns, (error - whole.error).square() * earns)
        mean, deviation = whole.scale or self.scale(own, nets, whole)
        errors = self.value_errors(
            value, (value_before - mean) / deviation, (returns - mean) / deviation
        )
        statistics = {
            "policy_loss": -(gained * acts).sum() / whole.acted,
            "value_loss": (errors * earns).sum() / whole.count / 2,
            "entropy": (entropy * acts).sum() / whole.acted,
            "approx_kl": (ratio - 1.0 - log_ratio).sum() / whole.acted,
            "clipfrac": (clipped != ratio).sum() / whole.acted,
        }
        loss = statistics["policy_loss"] + self.value_weight * statistics["value_loss"]
        loss = loss - self.entropy_weight * statistics["entropy"]
        told = {name: each.detach() for name, each in statistics.items()}
        return {"policy": loss, "value": loss}, {**told, **shares}

    def scale(
        self, own: GroupMembers, nets: Networks, whole: WholeMinibatch | None = None
    ) -> tuple[float, float]:
        """Return mean and deviation of what a value is to be, after a minibatch if given."""
        scale = nets.scale[own.agents[0]]
        assert isinstance(scale, ValueScale)
        averages = np.array(scale.averages.tolist())
        if whole is not None and self.normalise_values:
            found = float(whole.target_mean), float(whole.target_deviation)
            averages = ValueScale.moved(averages, *found)
        return ValueScale.of(averages)

    def value_errors(self, value: Tensor, before: Tensor, returns: Tensor) -> Tensor:
        """Return the squared errors of values, the greater one of clipped and not."""
        errors = (value - returns).square()
        if not self.value_clip:
            return errors
        near = before + (value - before).clamp(-self.value_clip, self.value_clip)
        return torch.maximum(errors, (near - returns).square())

    def computed(
        self, own: GroupMembers, nets: Networks, steps: Steps
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the members' log-probabilities, entropies and values, shape (rows, members).

        Values are in units of their scale.
        """
        steps = self.seen(own, nets, steps)
        outputs = policy_outputs(own, nets, steps)
        available, taken = (
            own.among(each)[..., : own.actions] for each in (steps.available, steps.entries)
        )
        if own.box is not None:
            chosen, entropy = clipped_gaussian(outputs, taken, own.box)
        elif own.vector is not None:
            chosen, entropy = categoricals(outputs, available, taken, own.vector.choices)
        else:
            chosen, entropy = categorical(outputs, available, own.among(steps.action))
        seen = own.inputs(self.value_sees(steps, own))
        values = over_episodes(nets.value[own.agents[0]], seen, steps.lengths, apart=steps.apart)
        return chosen, entropy, values[..., 0]

    def judged(self, own: GroupMembers, nets: Networks, steps: Steps) -> Mapping[str, Tensor]:
        """Return log-probabilities and values of the networks that played."""
        log_prob, _, values = self.computed(own, nets, steps)
        mean, deviation = self.scale(own, nets)
        return {
            "log_prob": log_prob * steps.acts[:, list(own.agents)],
            "value": mean + deviation * values,
        }

    @property
    def moved(self) -> Moved | None:
        """Return what moves the scale of values."""
        return rescale if self.normalise_values else None

    @property
    def hand_written(self) -> bool:
        """Return whether hand-written passes have these losses; by default they have not."""
        return False

    def fused(
        self, problem: Problem, members: Sequence[GroupMembers], nets: Networks
    ) -> Gradients | None:
        """Build the learner's role from hand-written passes on a CPU, or as graphs on CUDA.

        Passes are for perceptrons; graphs, for all networks without memory that see numbers as
        they are.
        """
        networks = [*nets.policy, *nets.value]
        device, cores = next(nets.policy[0].parameters()).device, [*map(core_of, networks)]
        if not self.hand_written or any(above(network) is not network for network in networks):
            return None
        if device.type == "cpu" and all(map(layers_of, cores)):
            return FusedPPO(self, members, nets, problem)
        if not stays_on(device) or any(isinstance(core, RecurrentAgent) for core in cores):
            return None
        return of_steps(self, problem, members, nets)

    def data_mode(self) -> DataMode:
        """Return the origin of the minibatch: each episode of a collection once an epoch."""
        return DataMode(batch_size=self.batch_size, epochs=self.epochs)
