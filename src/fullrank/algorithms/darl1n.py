"""DARL1N: actor-critic of one-hop neighbours; learners collect the transitions of their units.

[DARL1N], Sec. III and Algorithm 1. u_i = [gradient of the critic loss; gradient of the policy
loss] with, over B transitions of agent i and its neighbours N_i,

    critic loss = mean (r_i + discount Q'_i(o'_i, a'_N') - Q_i(o_i, a_N))^2
    policy loss = -mean Q_i(o_i, a_N with a_i a sample of pi_i(o_i)) + penalty mean(logits^2)

and a'_l a sample of the target policy of l, given what l itself sees, for each next neighbour l.

Iteration k collects the B transitions of agent i by neighbour interaction, with actions of the
policies broadcast for k. There are two data modes:

- ``keyed``: draws are keyed by (seed, k, i). u_i is then as pure a function as with a shared
  minibatch, and every holder of unit i computes the same bits.
- ``independent``, as in the paper: draws are keyed by (seed, k, j, i) for the holder of row j, so
  that holders' updates differ by the noise of their transitions. Decoded updates are clipped.

Differs from the paper in:

- Every update has fresh transitions; the authors' learners each keep a replay of their own, add to
  it by their own draws, and take B of it (docs/adr/0028 compares both).
- Transitions are single steps from anywhere, as in the authors' code, or by ``samples`` the steps
  of whole episodes (docs/adr/0032 compares both).
- With ``independent``, decoding weighs rows by their noise, and waits until little of it is left
  (docs/adr/0030); the paper's solves the first rows of rank M.
- Target actions are drawn in the update; the authors' code stores them with the transition.
- ``target_rate`` is the weight of the new parameters (0.01); tau is that of the old ones (0.99).
- Both sides of a contest learn; the authors' adversaries are policies trained before.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.actor_critic import ActorCritic, device_of, loss_weights
from fullrank.algorithms.autograd import AutogradGradients, Networks
from fullrank.algorithms.base import Algorithm, DataMode, World, register
from fullrank.algorithms.draws import Draws
from fullrank.algorithms.transitions import layout_of
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.environments.neighbour_samples import (
    MakeSamples,
    Samples,
    from_episodes,
    from_resets,
)
from fullrank.networks.fused.actor import FusedActor
from fullrank.networks.fused.clip import Clipper
from fullrank.networks.fused.critic_input import CriticInput, critic_inputs
from fullrank.networks.fused.darl1n import FusedDARL1N
from fullrank.networks.fused.neighbour_sampler import NeighbourSampler
from fullrank.networks.fused.network_group import NetworkGroup, make_groups
from fullrank.networks.modules import perceptron
from fullrank.networks.parameters import ParameterGroup

WAYS: dict[str, MakeSamples] = {"resets": from_resets, "episodes": from_episodes}

UNCLIPPED = float(np.finfo(np.float32).max)
"""Norm above every gradient's, at which clipping changes nothing."""


@register("darl1n")
@dataclass(frozen=True, slots=True, kw_only=True)
class DARL1N(ActorCritic):
    """DARL1N, for environments with neighbour interaction."""

    samples: Literal["resets", "episodes"] = "resets"
    """Single steps from states that a reset draws, for which only those around an agent are
    simulated; or the steps of whole episodes, for which the whole team is."""
    data: Literal["keyed", "independent"] = "keyed"
    """Whether all holders of a unit collect the same transitions, so that updates are exact and
    audited, or each draws its own, as in the paper: then no update is exact or can be audited."""
    max_variance: float = 2.0
    """With ``independent``: an iteration waits for further rows until the predicted variance of its
    decoded gradients, mean over the units, is at most so many times that of one learner's own; 2
    is the noise of half the samples. 0: for all rows; inf: for rank M alone. It never waits for
    departed learners, nor beyond the deadline."""
    evaluate_every: int = 10
    """Iterations from one evaluation in the whole environment to the next, which plays one episode
    in each copy without exploration."""

    def __post_init__(self) -> None:
        ActorCritic.__post_init__(self)
        if self.evaluate_every < 1:
            raise ConfigError("algorithm.evaluate_every must be at least 1")
        if not self.max_variance >= 0.0:
            raise ConfigError("algorithm.max_variance must be at least 0")

    def networks(self, world: World, agent: int) -> Mapping[str, nn.Module]:
        """A critic of the neighbourhood Q_i and a policy pi_i, perceptrons."""
        spec, layout = world.agents[agent], layout_of(world.agents)
        neighbours = world.local().neighbours_seen
        inputs = critic_inputs(CriticInput.LOCAL, layout, agent, neighbours=neighbours)
        return {
            "critic": perceptron(inputs, self.hidden, 1),
            "policy": perceptron(spec.observation_size, self.hidden, spec.action.size),
        }

    def losses(
        self, agent: int, nets: Networks, batch: "NeighbourTransitions", draws: Draws
    ) -> Mapping[str, Tensor]:
        """The critic loss and the policy loss of agent i."""
        i = agent
        with torch.no_grad():
            expected = batch.reward + self.discount * nets.target_critic[i](batch.seen_next)[:, 0]
        critic_loss = (expected - nets.critic[i](batch.seen)[:, 0]).square().mean()

        logits = nets.policy[i](batch.observation)
        action = draws.action("policy_action", i, logits)
        score = nets.critic[i](torch.cat([batch.observation, action, batch.neighbours], 1))[:, 0]
        policy_loss = self.logit_penalty * logits.square().mean() - score.mean()
        return {"critic": critic_loss, "policy": policy_loss}

    def reads(self, world: World, agent: int) -> Iterable[tuple[str, int]]:
        """The own critic and target critic; both policies of all who act in its transitions."""
        whole_team = self.samples == "episodes"
        acting = range(len(world.agents)) if whole_team else world.local().actors(agent)
        policies = [(role, k) for role in ("policy", "target_policy") for k in acting]
        return [("critic", agent), ("target_critic", agent), *policies]

    def data_mode(self) -> DataMode:
        """Transitions that learners collect themselves."""
        limit = self.max_variance if self.data == "independent" else float("inf")
        return DataMode(kind=self.data, max_variance=limit, evaluate_every=self.evaluate_every)

    def make(self, world: World, *, seed: int, device: str) -> Algorithm:
        """Build the roles on hand-written kernels."""
        group, sampler = self._group(world, seed=seed, device=device)
        independent = self.data == "independent"
        weights = loss_weights(self)
        if independent:
            weights = replace(weights, clip_norm=UNCLIPPED)
        gradients = FusedDARL1N(group, sampler, weights, seed=seed, keyed_by_row=independent)
        parameters = self.parameters(world, [group])
        return Algorithm(
            problem=self.problem(world),
            parameters=parameters,
            gradients=gradients,
            optimiser=self.optimiser(parameters, clip=self._clip if independent else None),
            actor=FusedActor([group], layout_of(world.agents), kernel=gradients.kernel, seed=seed),
        )

    def readable(self, world: World, *, seed: int, device: str) -> AutogradGradients:
        """The losses by autograd, which the hand-written kernel is held to."""
        group, sampler = self._group(world, seed=seed, device=device)
        nets = Networks(lambda agent: self.networks(world, agent), self.parameters(world, [group]))
        where = device_of(device)

        def load(rows: FloatArray) -> Callable[[UnitIndex, tuple[int, ...]], Any]:
            return lambda unit, key: NeighbourTransitions(
                sampler(unit, key), group.policy.inputs, group.policy.outputs, device=where
            )

        return self.autograd(world, nets, seed=seed, device=where, batch_of=load)

    def _group(
        self, world: World, *, seed: int, device: str
    ) -> tuple[NetworkGroup, NeighbourSampler]:
        """All agents, which are of one shape in a world of neighbours, and their sampler."""
        local = world.local()
        (group,) = make_groups(
            world.agents,
            layout_of(world.agents),
            critic_inputs=[CriticInput.LOCAL] * len(world.agents),
            neighbours=local.neighbours_seen,
            hidden=self.hidden,
            noise=self.exploration_noise,
            device=device_of(device),
            seed=seed,
        )
        return group, NeighbourSampler(
            local, WAYS[self.samples], group, batch_size=self.batch_size, seed=seed
        )

    def _clip(self, group: ParameterGroup, gradient: Tensor) -> None:
        """Clip decoded gradients variable by variable, in place."""
        assert isinstance(group, NetworkGroup)
        views = [layer.parts(gradient) for layer in (*group.critic.layers, *group.policy.layers)]
        Clipper(views, views, norm=self.clip_norm).clip()


class NeighbourTransitions:
    """B transitions of one agent as its losses read them.

    Attributes:
        observation: Own, shape (B, observation size).
        neighbours: Actions of the neighbours, shape (B, places x action size).
        seen: Own observation, own action and ``neighbours``.
        reward: Shape (B,).
        seen_next: As ``seen`` after the step, with target actions.
    """

    def __init__(
        self, samples: Samples, observed: int, actions: int, *, device: torch.device
    ) -> None:
        self.seen = torch.from_numpy(samples.seen).to(device)
        self.observation = self.seen[:, :observed]
        self.neighbours = self.seen[:, observed + actions :]
        self.reward = torch.from_numpy(samples.reward.astype(np.float32)).to(device)
        self.seen_next = torch.from_numpy(samples.seen_next).to(device)
