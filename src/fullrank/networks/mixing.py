"""Mixing networks: a joint value from the values of the agents' actions."""

import torch
from torch import Tensor, nn
from torch.nn import functional


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
