"""Networks of value-based teams: action values, shared by agents, and their mixing."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


def activated(signal: Tensor, *, normalised: bool) -> Tensor:
    """Return the ReLU of a layer's outputs, which have mean 0 and deviation 1 if ``normalised``."""
    if normalised:
        signal = functional.layer_norm(signal, signal.shape[-1:])
    return signal.relu()


class RecurrentAgent(nn.Module):
    """Values of all actions from a history: fc - ReLU - GRU - fc, as in [Rashid18, Appendix C].

    Args:
        inputs: Entries of one step's input: observation, last action, identity.
        hidden: Width of the hidden layer and of the recurrent state.
        actions: Number of actions.
        normalised: Normalise the layer before ReLU [Ba16], without a learned scale.
    """

    def __init__(self, inputs: int, hidden: int, actions: int, *, normalised: bool = False) -> None:
        super().__init__()
        self.normalised = normalised
        self.fc1 = nn.Linear(inputs, hidden)
        self.rnn = nn.GRU(hidden, hidden)
        self.fc2 = nn.Linear(hidden, actions)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return action values of each step, and the state after the last one.

        Args:
            inputs: Inputs of consecutive steps, shape (steps, rows, inputs).
            state: Recurrent state before the first step, shape (rows, hidden).

        Returns:
            Values, shape (steps, rows, actions), and the state, shape (rows, hidden).
        """
        states, last = self.trunk(inputs, state)
        return self.fc2(states), last

    def trunk(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's inputs, shape (steps, rows, hidden), and the last state."""
        below = activated(self.fc1(inputs), normalised=self.normalised)
        states, last = self.rnn(below, state.unsqueeze(0))
        return states, last[0]


class FeedForwardAgent(nn.Module):
    """Values of all actions from the present input alone: fc - ReLU - fc - ReLU - fc.

    The recurrent agent with a linear layer in place of the GRU; its state stays as it is.

    Args:
        inputs: Entries of one step's input: observation, last action, identity.
        hidden: Width of both hidden layers, and of the unused state.
        actions: Number of actions.
        normalised: Normalise both layers before ReLU [Ba16], without a learned scale.
    """

    def __init__(self, inputs: int, hidden: int, actions: int, *, normalised: bool = False) -> None:
        super().__init__()
        self.normalised = normalised
        self.fc1 = nn.Linear(inputs, hidden)
        self.rnn = nn.Linear(hidden, hidden)
        self.fc2 = nn.Linear(hidden, actions)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return action values of each step, and the given state; see ``RecurrentAgent``."""
        hidden, state = self.trunk(inputs, state)
        return self.fc2(hidden), state

    def trunk(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's inputs, and the given state; see ``RecurrentAgent``."""
        below = activated(self.fc1(inputs), normalised=self.normalised)
        return activated(self.rnn(below), normalised=self.normalised), state


class GroupedAgents(nn.Module):
    """Values of all actions of a team, of which groups of agents have a network each.

    Args:
        networks: Network of each group; all have inputs and outputs of the same sizes.
        groups: Agents of each group; every agent is in one.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        groups: Sequence[Sequence[int]],
    ) -> None:
        super().__init__()
        self.networks, self.groups = nn.ModuleList(networks), [list(own) for own in groups]
        listed = [agent for own in groups for agent in own]
        self._places = [listed.index(agent) for agent in range(len(listed))]

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return action values, and the state after the last step; see ``RecurrentAgent``.

        The rows of a copy's or an episode's agents lie side by side.
        """
        team = len(self._places)
        seen = torch.unflatten(inputs, 1, (-1, team)).unbind(2)
        before = torch.unflatten(state, 0, (-1, team)).unbind(1)
        values, after = list[Tensor](), list[Tensor]()
        for network, own in zip(self.networks, self.groups, strict=True):
            shown = torch.stack([seen[agent] for agent in own], 2).flatten(1, 2)
            found, last = network(shown, torch.stack([before[a] for a in own], 1).flatten(0, 1))
            values += torch.unflatten(found, 1, (-1, len(own))).unbind(2)
            after += torch.unflatten(last, 0, (-1, len(own))).unbind(1)
        joint, states = ([each[place] for place in self._places] for each in (values, after))
        return torch.stack(joint, 2).flatten(1, 2), torch.stack(states, 1).flatten(0, 1)

    def of(self, agent: int) -> nn.Module:
        """Return the network of an agent's group."""
        return next(
            network for network, own in zip(self.networks, self.groups, strict=True) if agent in own
        )


class MonotonicMixer(nn.Module):
    """Q_tot of [Rashid18, Sec. 4]: rises with every agent's value, by weights made from the state.

    Hypernetworks map the state to the weights of two layers, which enter by their magnitude, and to
    the first layer's bias; the last bias is a value of the state.

    Args:
        agents: Number of agents.
        state_size: Entries of the global state.
        embed: Width of the mixing layer.
        hypernet: Width of the hidden layer of the hypernetworks.
        hypernet_layers: 1 (linear) or 2, layers of the hypernetworks of weights.
    """

    def __init__(
        self, agents: int, state_size: int, *, embed: int, hypernet: int, hypernet_layers: int
    ) -> None:
        super().__init__()

        def weights(count: int) -> nn.Module:
            if hypernet_layers == 1:
                return nn.Linear(state_size, count)
            return nn.Sequential(
                nn.Linear(state_size, hypernet), nn.ReLU(), nn.Linear(hypernet, count)
            )

        self.agents, self.state_size, self.embed = agents, state_size, embed
        self.hyper_w_1 = weights(agents * embed)
        self.hyper_w_final = weights(embed)
        self.hyper_b_1 = nn.Linear(state_size, embed)
        self.V = nn.Sequential(nn.Linear(state_size, embed), nn.ReLU(), nn.Linear(embed, 1))

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Return Q_tot, shape (rows,), of values of shape (rows, agents) and states (rows, S)."""
        first = self.hyper_w_1(state).abs().unflatten(1, (self.agents, self.embed))
        mixed = torch.bmm(values.unsqueeze(1), first).squeeze(1)
        hidden = functional.elu(mixed + self.hyper_b_1(state))
        joint: Tensor = (hidden * self.hyper_w_final(state).abs()).sum(1) + self.V(state).squeeze(1)
        return joint


class DuellingMixer(nn.Module):
    """Q_tot of [Wang21b]: the agents' values and, beside them, their weighted advantages.

    Agent i's value enters as w_i(s) q_i + b_i(s), with w_i above 0 made by a hypernetwork. Its
    advantage, by which the value of its action so transformed falls short of that of its best one,
    counts lambda_i times instead of once:

        lambda_i = sum over heads k of v_k(s) phi_ik(s) lambda_ik(s, a)

    with v_k above 0, and phi and lambda_ik between 0 and 1.

    Args:
        agents: Number of agents.
        state_size: Entries of the global state.
        actions: Most actions of an agent.
        embed: Width of the hidden layer of b.
        hypernet: Width of the hidden layer of w.
        heads: Number of heads.
    """

    LEAST = 1e-10
    """Term added to magnitudes that have to be above 0."""

    def __init__(
        self, agents: int, state_size: int, actions: int, *, embed: int, hypernet: int, heads: int
    ) -> None:
        super().__init__()

        def hypernetwork(width: int) -> nn.Module:
            return nn.Sequential(nn.Linear(state_size, width), nn.ReLU(), nn.Linear(width, agents))

        self.heads = heads
        self.weight, self.bias = hypernetwork(hypernet), hypernetwork(embed)
        self.key = nn.Linear(state_size, heads)
        self.by_agent = nn.Linear(state_size, heads * agents)
        self.by_action = nn.Linear(state_size + agents * actions, heads * agents)

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Return the sum of the transformed values, shape (rows,).

        Args:
            values: Values of actions, shape (rows, agents).
            state: Global state, shape (rows, S).
        """
        joint: Tensor = (self.weights(state) * values + self.bias(state)).sum(1)
        return joint

    def weights(self, state: Tensor) -> Tensor:
        """Return w, shape (rows, agents)."""
        weights: Tensor = self.weight(state).abs() + self.LEAST
        return weights

    def importance(self, action: Tensor, state: Tensor) -> Tensor:
        """Return lambda, shape (rows, agents).

        Args:
            action: Actions as one-hot, shape (rows, agents, actions).
            state: Global state, shape (rows, S).
        """
        key = self.key(state).abs() + self.LEAST
        seen = torch.cat([state, action.flatten(1)], 1)
        by_head = self.by_agent(state).sigmoid() * self.by_action(seen).sigmoid()
        importance: Tensor = (key[..., None] * by_head.unflatten(1, (self.heads, -1))).sum(1)
        return importance
