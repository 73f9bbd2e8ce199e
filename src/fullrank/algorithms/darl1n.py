"""DARL1N: actor-critic over one-hop neighbours; learners collect the transitions of their units.

[DARL1N], Sec. III and Algorithm 1. u_i = [gradient of the critic loss; gradient of the policy
loss] with, over B transitions of agent i and its neighbours N_i,

    critic loss = mean (r_i + discount Q'_i(o'_i, a'_N') - Q_i(o_i, a_N))^2
    policy loss = -mean Q_i(o_i, a_N with a_i a sample of pi_i(o_i)) + penalty mean(logits^2)

and a'_l a sample of the target policy of l, given l's own observation, for each next neighbour l.

Iteration k collects the B transitions of agent i by neighbour interaction, with actions of the
policies broadcast for k. There are two data modes:

- ``keyed``: draws are keyed by (seed, k, i). u_i is a pure function, as with a shared minibatch,
  and every holder of unit i computes the same bits.
- ``independent``, as in the paper: draws are keyed by (seed, k, j, i) for the holder of row j, so
  that holders' updates differ by the noise of their transitions. Decoded updates are clipped.

Differences from the paper:

- Every update uses fresh transitions; each of the authors' learners samples B of its own replay
  (docs/adr/0028 compares both).
- Transitions are single steps from any state, as in the authors' code, or, by ``samples``, the
  steps of whole episodes (docs/adr/0032 compares both).
- With ``independent``, decoding weights rows by their noise, and waits until the noise is low
  (docs/adr/0030); the paper's decoding solves the first rows of rank M.
- Target actions are drawn in the update; the authors' code stores them with the transition.
- ``target_rate`` is the weight of the new parameters (0.01); tau is that of the old ones (0.99).
- Both sides of a contest learn, unless a run freezes one; the authors' adversaries are pretrained.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.actor_critic import ActorCritic, loss_weights
from fullrank.algorithms.base import EnvironmentSpec, layout_of, register
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.groups import Networks, initial_parameters, owner_of
from fullrank.algorithms.problem import DataMode
from fullrank.algorithms.roles import Algorithm
from fullrank.algorithms.transitions import Draws
from fullrank.algorithms.updates import Statistics
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, IntArray, UnitIndex
from fullrank.environments.neighbourhood import (
    AgentPolicy,
    MakeSamples,
    Samples,
    from_episodes,
    from_resets,
)
from fullrank.networks.fused.critic_input import CriticInput, critic_inputs
from fullrank.networks.fused.darl1n import (
    FusedDARL1N,
    NeighbourSampler,
    OutputsToActions,
    PerceptronPolicies,
    TeamPolicies,
    UnitSampler,
)
from fullrank.networks.fused.mlp import Clipper
from fullrank.networks.fused.network_group import FusedActor, NetworkGroup, make_groups
from fullrank.networks.fused.unit_batch import STATISTICS
from fullrank.networks.heads import Head
from fullrank.networks.modules import perceptron
from fullrank.networks.parameters import GroupedParameters, ParameterGroup

WAYS: dict[str, MakeSamples] = {"resets": from_resets, "episodes": from_episodes}


@register("darl1n")
@dataclass(frozen=True, slots=True, kw_only=True)
class DARL1N(ActorCritic):
    """DARL1N for environments with neighbour interaction."""

    samples: Literal["resets", "episodes"] = "resets"
    """``resets``: single steps from states drawn by a reset, simulating only an agent's
    neighbourhood. ``episodes``: the steps of whole episodes, simulating the whole team."""
    data: Literal["keyed", "independent"] = "keyed"
    """``keyed``: all holders of a unit collect the same transitions, so that updates are exact and
    audited. ``independent``: each holder draws its own, as in the paper, so that no update is exact
    or can be audited."""
    max_variance: float = 2.0
    """With ``independent``: an iteration waits for further rows until the predicted variance of its
    decoded gradients, averaged over the units, is at most this multiple of the variance of one
    learner's own; 2 is the noise of half the transitions. 0 waits for all rows, inf for rank M
    alone. Departed learners are never awaited, and the deadline limits the wait."""
    evaluate_every: int = 10
    """Number of iterations between evaluations in the whole environment, each of which plays one
    episode without exploration in each copy."""

    def __post_init__(self) -> None:
        ActorCritic.__post_init__(self)
        if self.evaluate_every < 1:
            raise ConfigError("algorithm.evaluate_every must be at least 1")
        if not self.max_variance >= 0.0:
            raise ConfigError("algorithm.max_variance must be at least 0")

    def statistics(self) -> tuple[str, ...]:
        """Return the names of the statistics beside the losses."""
        return STATISTICS

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """Build the critic Q_i of the neighbourhood and the policy pi_i, both perceptrons."""
        spec, layout = environment.agents[agent], layout_of(environment.agents)
        neighbours = environment.local().neighbours_seen
        inputs = critic_inputs(CriticInput.LOCAL, layout, agent, neighbours=neighbours)
        return {
            "critic": perceptron(inputs, self.hidden, 1),
            "policy": perceptron(spec.observation_size, self.hidden, spec.action.size),
        }

    def losses(
        self,
        agent: int,
        nets: Networks,
        batch: "Mapping[int, NeighbourTransitions]",
        draws: Draws,
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute the critic loss and the policy loss of agent i, and statistics."""
        i, own = agent, batch[agent]
        with torch.no_grad():
            expected = own.reward + self.discount * nets.target_critic[i](own.seen_next)[:, 0]
        value = nets.critic[i](own.seen)[:, 0]
        critic_loss = (expected - value).square().mean()

        logits = nets.policy[i](own.observation)
        action = draws.action("policy_action", i, logits)
        score = nets.critic[i](torch.cat([own.observation, action, own.neighbours], 1))[:, 0]
        policy_loss = self.logit_penalty * logits.square().mean() - score.mean()
        losses = {"critic": critic_loss, "policy": policy_loss}
        return losses, dict(zip(STATISTICS, (critic_loss, value.mean(), policy_loss), strict=True))

    def reads(self, environment: EnvironmentSpec, agent: int) -> Iterable[tuple[str, int]]:
        """List the agent's critics, and both policies of all agents acting in its transitions."""
        whole_team = self.samples == "episodes"
        acting = range(len(environment.agents)) if whole_team else environment.local().actors(agent)
        policies = [(role, k) for role in ("policy", "target_policy") for k in acting]
        return [("critic", agent), ("target_critic", agent), *policies]

    def data_mode(self) -> DataMode:
        """Return the data mode: learners collect transitions themselves."""
        limit = self.max_variance if self.data == "independent" else float("inf")
        return DataMode(
            kind=self.data,
            max_variance=limit,
            evaluate_every=self.evaluate_every,
            agent_steps=self.batch_size,
        )

    @property
    def hand_written(self) -> bool:
        """Return True; subclasses, which may compute otherwise, play and learn by their modules."""
        return type(self) is DARL1N

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build the roles, on hand-written kernels if these have the losses stated here."""
        if not self.is_hand_written(environment):
            return self.readable(environment, seed=seed, device=device)
        group, policies = self.perceptrons(environment, seed=seed, device=device)
        sampler = self.sampler(environment, policies, seed=seed)
        weights, independent = loss_weights(self), self.data == "independent"
        if independent:
            weights = replace(weights, clip_norm=None)
        gradients = FusedDARL1N(group, sampler, weights, seed=seed, keyed_by_row=independent)
        parameters = GroupedParameters([group])
        return Algorithm(
            problem=self.problem(environment),
            parameters=parameters,
            gradients=gradients,
            optimiser=self.optimiser(environment, parameters),
            actor=FusedActor([group], group.layout, kernel=gradients.kernel, seed=seed),
        )

    def readable(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build the roles on the losses' autograd, the reference for the hand-written kernels."""
        groups, where, agents = self.groups(environment), device_of(device), environment.agents
        policies: TeamPolicies
        if self.hand_written:
            group, policies = self.perceptrons(environment, seed=seed, device=device)
            parameters = GroupedParameters([group], owner=owner_of(groups))
        else:
            networks = partial(self.networks, environment)
            parameters = initial_parameters(networks, groups, seed=seed, device=where)
            nets = Networks(networks, groups, parameters)
            policies = ModulePolicies(nets, self.head(agents[0].action, where), where)
        sampler = self.sampler(environment, policies, seed=seed)

        def collect(unit: UnitIndex, key: tuple[int, ...]) -> Mapping[int, NeighbourTransitions]:
            return {
                agent: NeighbourTransitions(
                    sampler(agent, key),
                    agents[agent].observation_size,
                    agents[agent].action.size,
                    device=where,
                )
                for agent in groups[unit]
            }

        return self.by_autograd(
            environment, parameters, lambda rows: collect, seed=seed, device=where
        )

    def perceptrons(
        self, environment: EnvironmentSpec, *, seed: int, device: str
    ) -> tuple[NetworkGroup, PerceptronPolicies]:
        """Build the networks of all groups of agents, which have one shape, and their policies.

        Samples hold whole observations.
        """
        local, groups = environment.local(), self.groups(environment)
        specs = [replace(agent, always_zero=()) for agent in environment.agents]
        (group,) = make_groups(
            specs[: len(groups)],
            layout_of(specs),
            critic_inputs=[CriticInput.LOCAL] * len(groups),
            neighbours=local.neighbours_seen,
            hidden=self.hidden,
            noise=self.exploration_noise,
            device=device_of(device),
            seed=seed,
        )
        rows = {agent: row for row, agents in enumerate(groups) for agent in agents}
        return group, PerceptronPolicies(group, np.array([rows[k] for k in range(len(specs))]))

    def sampler(
        self, environment: EnvironmentSpec, policies: TeamPolicies, *, seed: int
    ) -> UnitSampler:
        """Build what makes the transitions of a unit, in which agents act by these policies."""
        return NeighbourSampler(
            environment.local(),
            WAYS[self.samples],
            policies,
            batch_size=self.batch_size,
            seed=seed,
        )

    def clip_of(self, environment: EnvironmentSpec) -> Callable[[ParameterGroup, Tensor], None]:
        """Return a function that clips decoded gradients variable by variable, in place."""
        if not self.hand_written:
            return ActorCritic.clip_of(self, environment)

        def clip(group: ParameterGroup, gradient: Tensor) -> None:
            assert isinstance(group, NetworkGroup)
            layers = (*group.critic.layers, *group.policy.layers)
            views = [layer.parts(gradient) for layer in layers]
            Clipper(views, views, norm=self.clip_norm).clip()

        return clip


class ModulePolicies:
    """Policies that are modules, which see an agent's rows by themselves.

    Args:
        nets: Networks at the broadcast parameters.
        head: Makes actions of outputs.
        device: Device of the networks.
    """

    def __init__(self, nets: Networks, head: Head, device: torch.device) -> None:
        self.head, self._nets, self._device = head, nets, device

    def player(self, choose: OutputsToActions, *, target: bool) -> AgentPolicy:
        """Return what acts, one agent after another; see ``TeamPolicies``."""
        policies = self._nets.target_policy if target else self._nets.policy

        def act(agents: IntArray, observation: FloatArray) -> FloatArray:
            found, order = list[FloatArray](), np.argsort(agents, kind="stable")
            with torch.no_grad():
                for agent in np.unique(agents):
                    seen = torch.from_numpy(observation[agents == agent]).to(self._device)
                    outputs = policies[agent](seen).t().unsqueeze(0).contiguous()
                    found.append(choose(outputs)[0].t().cpu().numpy())
            return np.concatenate(found)[np.argsort(order)]

        return act


class NeighbourTransitions:
    """B transitions of one agent, split into the tensors that its losses read.

    Attributes:
        observation: Own observation, shape (B, observation size).
        neighbours: Actions of the neighbours, shape (B, places x action size).
        seen: Own observation, own action and ``neighbours``.
        reward: Rewards, shape (B,).
        seen_next: Like ``seen``, after the step and with target actions.
    """

    def __init__(
        self, samples: Samples, observed: int, actions: int, *, device: torch.device
    ) -> None:
        self.seen = torch.from_numpy(samples.seen).to(device)
        self.observation = self.seen[:, :observed]
        self.neighbours = self.seen[:, observed + actions :]
        self.reward = torch.from_numpy(samples.reward.astype(np.float32)).to(device)
        self.seen_next = torch.from_numpy(samples.seen_next).to(device)
