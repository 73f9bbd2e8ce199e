"""Agents whose perceptrons have equal shapes, the inputs of their critics, and how they act.

A row is [critic | policy], each a perceptron whose layers lie one after another, with the bias as
the last column of its layer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec
from fullrank.networks.fused.critic_input import (
    CriticInput,
    GatherIndex,
    LiveColumns,
    critic_inputs,
)
from fullrank.networks.fused.kernels import Kernel
from fullrank.networks.fused.mlp import Activations, Mlp, Weights, forward
from fullrank.networks.heads import Choose, Head, MemorylessActor, make_head
from fullrank.networks.parameters import ParameterGroup
from fullrank.replay.layout import Layout

NARROW = 4
"""Width in floats, 16 bytes, from which the bits of a product do not depend on alignment."""


def networks(
    layout: Layout, agent: int, *, hidden: int, critic_input: CriticInput, neighbours: int = 0
) -> tuple[Mlp, Mlp]:
    """Place the agent's critic and policy in its row.

    Args:
        layout: Layout of a transition.
        agent: Index of the agent.
        hidden: Width of the hidden layers.
        critic_input: Kind of the critic's input.
        neighbours: Number of neighbours whose actions a local critic sees.
    """
    own, actions = layout.observation_sizes[agent], layout.action_sizes[agent]
    inputs = critic_inputs(critic_input, layout, agent, neighbours=neighbours)
    critic = Mlp(0, inputs, hidden, 1)
    return critic, Mlp(critic.end, own, hidden, actions)


class NetworkGroup(ParameterGroup):
    """Agents with equal observations, equal action specification and equal kind of critic.

    Joint inputs are without the entries of observations that are always zero; networks have weights
    for these, which get no gradient.

    Attributes:
        layout: Layout of a transition.
        head: Turns the policies' outputs into actions.
        critic_input: Kind of the critics' input.
        critic: Critic, whose inputs depend on ``critic_input``.
        policy: Policy, whose input is the agent's own observation.
        critic_columns: Columns of the critics' first layer [W | b] that are multiplied; None: all.
        critic_width: Number of columns of the matrices that multiply the inputs of critics.
        policy_columns: Columns of the policies' first W that are multiplied; None: all.
        policy_width: Number of these columns.
        observation_index: Rows of each agent's own observation in a joint input.
        whole_index: Rows of each agent's observation in a whole joint observation.
        action_index: Rows of each agent's own action in a joint input.
        critic_index: Rows of each agent's own observation, own action and ones in a joint input.
        lone: Whether each unit is computed by itself. Matrices of one column, and narrow ones whose
            rows are not multiples of 16 bytes, are multiplied by routines whose bits depend on
            where a matrix begins, so on the units before it in memory.
        least: Smallest number of units in a product. On Intel processors MKL adds one product of
            depth 1 by another routine than several of them, with other bits.
    """

    def __init__(
        self,
        agents: Sequence[int],
        layout: Layout,
        head: Head,
        *,
        hidden: int,
        critic_input: CriticInput,
        neighbours: int,
        device: torch.device,
    ) -> None:
        self.layout, self.head, self.critic_input = layout, head, critic_input
        self.critic, self.policy = networks(
            layout, agents[0], hidden=hidden, critic_input=critic_input, neighbours=neighbours
        )
        live, local = layout.live_of(agents[0]), critic_input is CriticInput.LOCAL
        seen, unseen = (live, self.policy.inputs) if local else (layout.live, layout.whole_size)
        rest = range(unseen, self.critic.inputs + 1)
        self.policy_width, self.critic_width = len(live), len(seen) + len(rest)
        self.policy_columns = self.critic_columns = None
        if len(live) < self.policy.inputs:
            self.policy_columns = LiveColumns(live.tolist())
        if len(seen) < unseen:
            self.critic_columns = LiveColumns([*seen.tolist(), *rest])
        widths = self.policy_width, self.policy.hidden, self.policy.outputs
        self.lone = widths[0] == 1 or (min(widths) < NARROW and hidden % NARROW > 0)
        self.least = 2 if self.lone or min(widths) == 1 else 1
        columns = {
            role: slice(network.start, network.end)
            for role, network in (("critic", self.critic), ("policy", self.policy))
        }
        super().__init__(agents, columns, device=device)
        every = torch.arange(layout.action.stop + 1, device=device)
        observed = torch.stack([every[layout.observation_of(agent)] for agent in agents])
        ones = every[-1:].expand(len(agents), 1)
        self.observation_index = observed
        sizes = layout.observation_sizes
        whole = torch.split(torch.arange(layout.whole_size, device=device), [*sizes])
        self.whole_index = torch.stack([whole[agent] for agent in agents])
        self.action_index = torch.stack(
            [every[layout.action][layout.action_of(agent)] for agent in agents]
        )
        self.critic_index = torch.cat([observed, self.action_index, ones], 1)

    def initialise(self, seed: int) -> None:
        """Draw Glorot-uniform weights keyed by (seed, agent); zero biases, copy to the targets."""
        online, target = self.host
        for row, agent in enumerate(self.agents):
            generator = stream(seed, "initialise", agent)
            for layer in (*self.policy.layers, *self.critic.layers):
                limit = (6.0 / (layer.inputs + layer.outputs)) ** 0.5
                drawn = generator.uniform(-limit, limit, (layer.outputs, layer.inputs))
                layer.of(online[row : row + 1])[0, :, :-1] = torch.from_numpy(drawn)
        target.copy_(online)
        self.push()

    def policy_layers(self, row: int) -> tuple[FloatArray, ...]:
        """Return the policy's layers [W | b] from the input up, in memory shared with NumPy."""
        own = self.host[0][row : row + 1]
        return tuple(layer.of(own)[0].numpy() for layer in self.policy.layers)


def make_groups(
    specs: Sequence[AgentSpec],
    layout: Layout,
    *,
    critic_inputs: Sequence[CriticInput],
    hidden: int,
    noise: float,
    device: torch.device,
    seed: int,
    neighbours: int = 0,
) -> tuple[NetworkGroup, ...]:
    """Group agents by shape, in the order of each shape's first agent, with initial parameters.

    Args:
        specs: Specifications of all agents.
        layout: Layout of a transition.
        critic_inputs: Kind of each agent's critic input.
        hidden: Width of the hidden layers.
        noise: Exploration noise of continuous actions, as a share of half the range.
        device: Device of the parameters.
        seed: Keys the initial parameters.
        neighbours: Number of neighbours whose actions local critics see.
    """
    shapes: dict[object, list[int]] = {}
    for agent, spec in enumerate(specs):
        shape = (spec.observation_size, spec.always_zero, spec.action, critic_inputs[agent])
        shapes.setdefault(shape, []).append(agent)
    groups = tuple(
        NetworkGroup(
            agents,
            layout,
            make_head(specs[agents[0]].action, noise=noise, device=device),
            hidden=hidden,
            critic_input=critic_inputs[agents[0]],
            neighbours=neighbours,
            device=device,
        )
        for agents in shapes.values()
    )
    for group in groups:
        group.initialise(seed)
    return groups


class _Policies(NamedTuple):
    """Policies of a group; views of their parameters and indices are made once."""

    group: NetworkGroup
    weights: Weights
    observations: GatherIndex
    """Rows of the agents' observations in a joint one."""
    actions: GatherIndex
    """Rows of the agents' actions in a joint one."""

    @classmethod
    def of(cls, group: NetworkGroup, layout: Layout) -> "_Policies":
        """Place the agents of a group."""
        device = group.rows.online.device
        observations = group.whole_index.flatten().tolist()
        actions = (group.action_index - layout.action.start).flatten().tolist()
        return cls(
            group,
            group.policy.weights(group.rows.online),
            GatherIndex(observations, device),
            GatherIndex(actions, device),
        )

    def outputs(self, seen: Tensor) -> Tensor:
        """Compute the outputs, shape (agents, action size, copies), from a joint observation."""
        policy, agents, copies = self.group.policy, len(self.group.agents), seen.shape[1]
        own = self.observations.of(seen).contiguous().view(agents, -1, copies)
        below = own.new_empty(agents, policy.hidden, copies)
        outputs = own.new_empty(agents, policy.outputs, copies)
        return forward(self.weights, own, Activations(below, below), outputs)


class FusedActor(MemorylessActor):
    """Perceptron policies as an ``Actor``, without memory.

    Args:
        groups: All agents, with the current parameters.
        layout: Layout of joint actions.
        kernel: Kernel of the matrix products.
        seed: Keys the exploration.
    """

    def __init__(
        self, groups: Sequence[NetworkGroup], layout: Layout, *, kernel: Kernel, seed: int
    ) -> None:
        device = groups[0].rows.online.device
        super().__init__(layout.action_sizes, device=device, seed=seed)
        self._groups, self._kernel = groups, kernel
        self._policies = [_Policies.of(group, layout) for group in groups]

    def _act(self, observation: Tensor, available: Tensor | None, choose: Choose) -> Tensor:
        with self._kernel.active():
            joint = torch.empty(sum(self._action_sizes), len(observation), device=self.device)
            for policies in self._policies:
                head, outputs = policies.group.head, policies.outputs(observation.t())
                if available is not None:
                    allowed = policies.actions.of(available.t())
                    outputs = head.mask(outputs, allowed.view_as(outputs))
                policies.actions.put(joint, choose(head, outputs).flatten(0, 1))
            return joint

    def policy(self, agent: int) -> tuple[FloatArray, ...]:
        """Return the agent's policy, layer by layer; see ``Actor.policy``."""
        for group in self._groups:
            if agent in group.agents:
                return group.policy_layers(group.agents.index(agent))
        raise IndexError(f"there is no agent {agent}")
