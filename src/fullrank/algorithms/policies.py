"""Stochastic policies: their networks, and their actor.

Discrete actions are drawn from a perceptron's outputs, continuous ones from a Gaussian about them,
whose deviation is a parameter; ``fullrank.algorithms.likelihoods`` has the distributions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import log

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.likelihoods import LearnedSpread
from fullrank.algorithms.on_policy import GroupMembers, Steps
from fullrank.algorithms.roles import Memory, RecurrentLayers
from fullrank.algorithms.trajectories import by_agent, image_layers, own_layers
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Continuous, MultiDiscrete
from fullrank.networks.fused import kernels
from fullrank.networks.fused.perceptron import outputs_apart
from fullrank.networks.heads import Choices, Choose, Head, Relaxed
from fullrank.networks.images import ImageEncoder, Seeing, above
from fullrank.networks.modules import layers_of
from fullrank.networks.normalised import Normalising
from fullrank.networks.value_networks import RecurrentAgent

NORMALISED = [nn.Linear, nn.LayerNorm, nn.ReLU] * 2 + [nn.Linear]
"""Layers of the one other network than perceptrons and those with memory that is exported."""

FIRST_WEIGHTS = 0.01
"""Factor of the last weights at the start, by which all actions are about as likely."""

FIRST_DEVIATION = 0.5
"""Deviation of continuous actions at the start, as a share of half their range."""


class GaussianPolicy(nn.Module):
    """Means of the entries of an action, before tanh, and the logarithms of their deviations.

    Args:
        mean: Network of the means.
        size: Entries of an action.
    """

    def __init__(self, mean: nn.Module, size: int) -> None:
        super().__init__()
        self.mean = mean
        self.log_deviation = nn.Parameter(torch.full((size,), log(FIRST_DEVIATION)))

    def forward(self, inputs: Tensor, *state: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return both, shape (..., 2 size), and the state after the last step if there is one."""
        if not state:
            return self._with_deviation(self.mean(inputs))
        means, after = self.mean(inputs, *state)
        return self._with_deviation(means), after

    def _with_deviation(self, means: Tensor) -> Tensor:
        return torch.cat([means, self.log_deviation.expand_as(means)], -1)


def policy_of(
    own: GroupMembers,
    build: Callable[[int, int, int], nn.Module],
    *,
    hidden: int,
    normalised: bool = False,
) -> nn.Module:
    """Build the policy of a group, above the features of an image if its members observe one.

    Args:
        own: Members of the group.
        build: Builds a network from the numbers of inputs, of hidden entries and of outputs.
        hidden: Number of hidden entries.
        normalised: Normalise the features before ReLU.
    """
    network = build(own.width(own.observation), hidden, own.actions)
    *_, weights, _ = network.parameters()  # of the last layer
    with torch.no_grad():
        weights.mul_(FIRST_WEIGHTS)
    policy = network if own.box is None else GaussianPolicy(network, own.actions)
    if own.image is None:
        return policy
    return Seeing(ImageEncoder(own.image, own.observation, normalised=normalised), policy)


def core_of(network: nn.Module) -> nn.Module:
    """Return the network of a policy's logits or means, above the features of images."""
    network = above(network)
    return network.mean if isinstance(network, GaussianPolicy) else network


def over_episodes(
    network: nn.Module, inputs: Tensor, lengths: Sequence[int], *, apart: bool = False
) -> Tensor:
    """Return the outputs of a network, whose recurrent state begins anew with each episode.

    Args:
        network: A policy or a value; of one that sees images, the part above their features.
        inputs: Inputs, episode by episode, shape (rows, members, size).
        lengths: Rows of each episode.
        apart: The network sees each episode by itself.

    Returns:
        Shape (rows, members, outputs).
    """
    if apart and (layers := layers_of(network)) is not None:
        return outputs_apart(layers, inputs, lengths)
    if apart:
        every = torch.split(inputs, list(lengths))
        return torch.cat([over_episodes(network, own.clone(), [len(own)]) for own in every])
    network, core = above(network), core_of(network)
    if not isinstance(core, RecurrentAgent):
        outputs: Tensor = network(inputs)
        return outputs
    padded = nn.utils.rnn.pad_sequence([*torch.split(inputs, list(lengths))])
    state = inputs.new_zeros(len(lengths) * inputs.shape[1], core.fc1.out_features)
    found, _ = network(padded.flatten(1, 2), state)
    by_episode = torch.unflatten(found, 1, (len(lengths), -1)).unbind(1)
    return torch.cat([own[:rows] for own, rows in zip(by_episode, lengths, strict=True)])


def policy_outputs(own: GroupMembers, nets: Networks, steps: Steps) -> Tensor:
    """Return the outputs of a group's policy, shape (rows, members, outputs)."""
    seen = own.inputs(own.among(steps.observation)[..., : own.observation])
    return over_episodes(nets.policy[own.agents[0]], seen, steps.lengths, apart=steps.apart)


def seeing(own: GroupMembers, policy: Seeing, steps: Steps, *, joint: bool) -> Steps:
    """Return steps in which the members of a group observe features of their images.

    Args:
        own: Members of the group.
        policy: Has the encoder.
        steps: Steps with packed images.
        joint: The state is read, which is the features of all agents.
    """
    every = steps.observation
    encoded = partial(over_episodes, policy.encoder, lengths=steps.lengths, apart=steps.apart)
    if joint or len(own.agents) == every.shape[1]:
        features = encoded(every)
    else:
        agents = torch.tensor(own.agents, device=every.device)
        features = encoded(every[:, agents])
        blank = features.new_zeros(*every.shape[:2], own.observation)
        features = blank.index_copy(1, agents, features)
    return steps.seeing(features, features.flatten(1))


class PolicyActor:
    """Role ``policy`` of each group as an ``Actor``; the memory is the recurrent state.

    Args:
        agents: Specifications of all agents.
        nets: Networks with the current parameters.
        groups: Members of each group.
        state: Entries of an agent's recurrent state; 0: there is none.
        seed: Keys the exploration.
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec],
        nets: Networks,
        groups: Sequence[GroupMembers],
        *,
        state: int,
        seed: int,
    ) -> None:
        self._agents, self._nets, self._groups = agents, nets, groups
        self._state, self._seed = state, seed
        self._everyone = [*range(len(agents))]
        self._action_sizes = [agent.action.size for agent in agents]
        self._observed = tuple(agent.observation_size for agent in agents)
        self._device = next(nets.policy[0].parameters()).device
        alike = groupby(range(len(agents)), key=lambda agent: agents[agent].action)
        runs = [[*run] for _, run in alike]
        self._heads = [(self._head_of(agents[run[0]]), run) for run in runs]

    def _head_of(self, agent: AgentSpec) -> Head:
        """Return the head of an agent; a likelihood is that of one action, not of a mixture."""
        if isinstance(agent.action, Continuous):
            return LearnedSpread(agent.action, device=self._device)
        if isinstance(agent.action, MultiDiscrete):
            return Choices(agent.action)
        return Relaxed(replace(agent.action, relaxed=False))

    def memory(self, copies: int) -> Memory:
        """Return zeros, shape (E, n, state); nothing without a recurrent state."""
        shape = copies, len(self._agents), self._state
        return (np.zeros(shape, np.float32),) if self._state else ()

    def act(
        self,
        observation: FloatArray,
        memory: Memory,
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, Memory]:
        """Return exploring joint actions, keyed by (seed, iteration, step); see ``Actor.act``."""
        generator = stream(self._seed, "act", iteration, step)
        actions, memory = self._act(
            observation, memory, available, lambda head, outputs: head.explore(outputs, generator)
        )
        return actions * np.repeat(alive, self._action_sizes, axis=1), memory

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        """Return the likeliest actions as one-hot, or the means."""
        return self._act(observation, memory, available, lambda head, outputs: head.mode(outputs))

    def _act(
        self,
        observation: FloatArray,
        memory: Memory,
        available: BoolArray | None,
        choose: Choose,
    ) -> tuple[FloatArray, Memory]:
        outputs, memory = self._outputs(observation, memory)
        mask = None if available is None else torch.from_numpy(available).to(self._device)
        actions = []
        for head, run in self._heads:
            found, first = torch.stack([outputs[agent] for agent in run]), run[0]
            if mask is not None:
                start, size = sum(self._action_sizes[:first]), self._action_sizes[first]
                allowed = torch.unflatten(
                    mask[:, start : start + len(run) * size], 1, (len(run), size)
                )
                found = head.mask(found, allowed.permute(1, 2, 0))
            actions.append(choose(head, found).flatten(0, 1))
        return np.ascontiguousarray(torch.cat(actions).t().cpu().numpy()), memory

    def _outputs(self, observation: FloatArray, memory: Memory) -> tuple[list[Tensor], Memory]:
        """Compute each policy's outputs as heads take them, shape (outputs, copies)."""
        seen = by_agent(torch.from_numpy(np.ascontiguousarray(observation)), self._observed)
        seen, outputs = seen.to(self._device), dict[int, Tensor]()
        after = tuple(np.empty_like(array) for array in memory)
        with kernels.DEFAULT.selected(), torch.no_grad():
            for own in self._groups:
                agents, network = list(own.agents), self._nets.policy[own.agents[0]]
                observed = seen if agents == self._everyone else seen[:, agents]
                if isinstance(network, Seeing | Normalising):
                    observed, network = network.sees(observed), network.network
                inputs = own.inputs(observed[..., : own.observation])
                if memory:
                    state = torch.from_numpy(memory[0][:, agents]).to(self._device)
                    found, last = network(inputs.flatten(0, 1).unsqueeze(0), state.flatten(0, 1))
                    found = found[0].view(*inputs.shape[:2], -1)
                    after[0][:, agents] = last.view_as(state).cpu().numpy()
                else:
                    found = network(inputs)
                for agent, output in zip(agents, found.permute(1, 2, 0), strict=True):
                    outputs[agent] = output if own.box else output[: self._action_sizes[agent]]
        return [outputs[agent] for agent in range(len(self._agents))], after

    def policy(self, agent: int) -> tuple[FloatArray, ...] | RecurrentLayers:
        """Return the agent's policy, with its identity in the first bias; see ``Actor.policy``."""
        own = next(each for each in self._groups if agent in each.agents)
        image, policy = None, self._nets.policy[agent]
        if isinstance(policy, Normalising):
            raise ConfigError(
                "policies of normalised observations are not exported; use the checkpoint"
            )
        network, inputs = core_of(policy), [*range(self._observed[agent])]
        if isinstance(policy, Seeing):
            image, inputs = image_layers(policy.encoder), [*range(own.observation)]
        identity = own.observation + own.agents.index(agent) if own.identity else None
        actions = self._action_sizes[agent]
        if isinstance(network, RecurrentAgent):
            if own.box is not None:
                raise ConfigError(
                    "recurrent policies are exported where actions are discrete; use the checkpoint"
                )
            return own_layers(
                network,
                inputs=inputs,
                identity=identity,
                actions=actions,
                last_action=False,
                image=image,
            )
        plain, parts = layers_of(network), [*network.children()]
        if plain is None and [type(part) for part in parts] != NORMALISED:
            raise ConfigError(
                "policies are exported that are perceptrons with ReLU between their layers; use "
                "the checkpoint"
            )
        layers = plain or [part for part in parts if isinstance(part, nn.Linear)]
        if own.box is not None and (plain is None or image is not None):
            raise ConfigError(
                "policies of normalised layers, and of images, are exported where actions are "
                "discrete; use the checkpoint"
            )
        matrices = [
            torch.cat([layer.weight, layer.bias[:, None]], 1).detach().cpu().numpy()
            for layer in layers
        ]
        first, bias = matrices[0], matrices[0][:, -1:]
        if identity is not None:
            bias = bias + first[:, identity, None]
        matrices[0] = np.concatenate([first[:, inputs], bias], axis=1)
        matrices[-1] = matrices[-1][:actions]
        matrices = [*map(np.ascontiguousarray, matrices)]
        if plain is not None and image is None:
            return tuple(matrices)
        entered, middle, left = matrices
        return RecurrentLayers(
            first=entered,
            input_gates=middle,
            state_gates=None,
            last=left,
            last_action=False,
            normalised=plain is None,
            image=image,
        )
