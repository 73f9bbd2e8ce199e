"""Agents of one shape, their networks and their parameters, as rows of flat buffers.

A row is [critic | policy], each a perceptron whose layers lie one after another, the bias as the
last column of its layer. Unit i's update has exactly the order and the length of its online row.
Rows are padded at the end, so that every one starts on 64 bytes.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec
from fullrank.networks.fused.adam import Rows
from fullrank.networks.fused.heads import Head, make_head
from fullrank.networks.fused.mlp import Mlp, aligned
from fullrank.networks.fused.sight import Sight, critic_inputs
from fullrank.replay.layout import Layout

ROLES = ("policy", "critic", "target_policy", "target_critic")
"""The networks of an agent that are broadcast."""


def networks(
    layout: Layout, agent: int, *, hidden: int, sight: Sight, neighbours: int = 0
) -> tuple[Mlp, Mlp]:
    """Where the agent's critic and policy lie in its row.

    Args:
        layout: Of a transition.
        agent: Its index.
        hidden: Width of the hidden layers.
        sight: What the critic sees.
        neighbours: How many neighbours' actions it sees.
    """
    own, actions = layout.observation_sizes[agent], layout.action_sizes[agent]
    critic = Mlp(0, critic_inputs(sight, layout, agent, neighbours=neighbours), hidden, 1)
    return critic, Mlp(critic.end, own, hidden, actions)


class Cohort:
    """Agents with equal observation size, equal action specification and equal kind of critic.

    Attributes:
        agents: Their indices, ascending; row r belongs to ``agents[r]``.
        layout: Of a transition.
        head: Makes their actions.
        sight: What their critics see.
        critic: Inputs: what it sees.
        policy: Inputs: own observation.
        size: Entries of a row without its padding.
        rows: Parameters, targets and moments on the device, each (agents, padded size).
        observation_index: Own observation in a joint input, per agent.
        action_index: Own action in a joint input, per agent.
        critic_index: Own observation, own action and the row of ones in a joint input, per agent.
    """

    def __init__(
        self,
        agents: Sequence[int],
        layout: Layout,
        head: Head,
        *,
        hidden: int,
        sight: Sight,
        neighbours: int,
        device: torch.device,
    ) -> None:
        self.agents = tuple(agents)
        self.layout, self.head, self.sight = layout, head, sight
        self.critic, self.policy = networks(
            layout, agents[0], hidden=hidden, sight=sight, neighbours=neighbours
        )
        self.size = self.policy.end
        shape = (len(agents), aligned(self.size))
        self.rows = Rows(*(torch.zeros(shape, device=device) for _ in range(4)))
        self._host = (self.rows.online.cpu(), self.rows.target.cpu())  # the same tensors on a CPU
        every = torch.arange(layout.action.stop + 1, device=device)
        observed = torch.stack([every[layout.observation_of(agent)] for agent in agents])
        ones = every[-1:].expand(len(agents), 1)
        self.observation_index = observed
        self.action_index = torch.stack(
            [every[layout.action][layout.action_of(agent)] for agent in agents]
        )
        self.critic_index = torch.cat([observed, self.action_index, ones], 1)

    def initialise(self, seed: int) -> None:
        """Glorot-uniform weights and zero biases, keyed by (seed, agent); targets equal."""
        online, target = self._host
        for row, agent in enumerate(self.agents):
            generator = stream(seed, "initialise", agent)
            for layer in (*self.policy.layers, *self.critic.layers):
                limit = (6.0 / (layer.inputs + layer.outputs)) ** 0.5
                drawn = generator.uniform(-limit, limit, (layer.outputs, layer.inputs))
                layer.of(online[row : row + 1])[0, :, :-1] = torch.from_numpy(drawn)
        target.copy_(online)
        self.push()

    def view(self, row: int, role: str) -> FloatArray:
        """One network's parameters in memory that NumPy shares, flat."""
        return self._net(self._host, row, role).numpy()

    def policy_layers(self, row: int) -> tuple[FloatArray, ...]:
        """The policy's layers [W | b] from the input up, in memory that NumPy shares."""
        own = self._host[0][row : row + 1]
        return tuple(layer.of(own)[0].numpy() for layer in self.policy.layers)

    def _net(self, sources: tuple[Tensor, Tensor], row: int, role: str) -> Tensor:
        net = self.critic if role.endswith("critic") else self.policy
        return sources[role.startswith("target")][row, net.start : net.end]

    def parts(self, row: int) -> Iterator[tuple[str, Tensor]]:
        """All that belongs to one agent, on the device, by name."""
        for role in ROLES:
            yield role, self._net((self.rows.online, self.rows.target), row, role)
        yield "moment", self.rows.moment[row, : self.size]
        yield "second_moment", self.rows.second_moment[row, : self.size]

    def push(self) -> None:
        """Copy what was written through ``view`` to the device; nothing to do on a CPU."""
        self.rows.online.copy_(self._host[0])
        self.rows.target.copy_(self._host[1])

    def pull(self) -> None:
        """The other way round."""
        self._host[0].copy_(self.rows.online)
        self._host[1].copy_(self.rows.target)


def make_cohorts(
    specs: Sequence[AgentSpec],
    layout: Layout,
    *,
    sights: Sequence[Sight],
    hidden: int,
    noise: float,
    device: torch.device,
    neighbours: int = 0,
) -> tuple[Cohort, ...]:
    """Agents grouped by shape, in the order of each shape's first agent.

    Args:
        specs: All agents.
        layout: Of a transition.
        sights: What their critics see.
        hidden: Width of the hidden layers.
        noise: Of continuous actions.
        device: Where parameters lie.
        neighbours: How many neighbours' actions local critics see.
    """
    groups: dict[object, list[int]] = {}
    for agent, spec in enumerate(specs):
        shape = (spec.observation_size, spec.action, sights[agent])
        groups.setdefault(shape, []).append(agent)
    return tuple(
        Cohort(
            agents,
            layout,
            make_head(specs[agents[0]].action, noise=noise, device=device),
            hidden=hidden,
            sight=sights[agents[0]],
            neighbours=neighbours,
            device=device,
        )
        for agents in groups.values()
    )
