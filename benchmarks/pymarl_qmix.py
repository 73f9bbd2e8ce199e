"""QMIX's update in PyMARL's way, a peer of ``one_device.py``: the package cannot be installed.

Source: its ``QLearner``, ``BasicMAC``, ``RNNAgent`` and ``QMixer``, as the paper of SMAC (Samvelyan
et al. 2019) describes them, written anew in plain torch. Every step of an episode calls the agents
once, whose input is put together there: observation, last action, identity. Autograd unrolls the
steps; double Q-learning, masks, hypernetworks of two layers, a clipped global norm, RMSprop.
"""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

UNAVAILABLE, EMBEDDING, HYPERNET, PERIOD = -9999999.0, 32, 64, 200
"""Value of an action that is not available; widths of the mixing; updates between target copies."""


class _Agent(nn.Module):
    """Linear - ReLU - GRU cell - linear, one step of all agents."""

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.fc1, self.rnn = nn.Linear(inputs, hidden), nn.GRUCell(hidden, hidden)
        self.fc2, self.hidden = nn.Linear(hidden, actions), hidden

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.rnn(self.fc1(inputs).relu(), state)
        return self.fc2(state), state


class _Mixer(nn.Module):
    """Monotonic mixing of the agents' values by weights that hypernetworks make of the state."""

    def __init__(self, agents: int, state: int) -> None:
        super().__init__()

        def hyper(width: int, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Linear(state, width), nn.ReLU(), nn.Linear(width, outputs))

        self.first, self.last = hyper(HYPERNET, agents * EMBEDDING), hyper(HYPERNET, EMBEDDING)
        self.bias, self.value = nn.Linear(state, EMBEDDING), hyper(EMBEDDING, 1)

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Mix values, shape (B, T, n), at states, shape (B, T, entries), into (B, T, 1)."""
        shape, state = values.shape[:2], state.flatten(0, 1)
        own = values.reshape(len(state), 1, -1)
        weights = self.first(state).abs().view(len(state), -1, EMBEDDING)
        hidden = nn.functional.elu(torch.bmm(own, weights) + self.bias(state)[:, None])
        mixed: Tensor = (
            torch.bmm(hidden, self.last(state).abs()[:, :, None]) + self.value(state)[:, None]
        )
        return mixed.view(*shape, 1)


def make_update(
    *, agents: int, inputs: int, state: int, actions: int, episodes: int, steps: int, hidden: int
) -> Callable[[], None]:
    """Return one update on a random batch of episodes of equal length, on the default device."""
    torch.manual_seed(0)
    agent, mixer = _Agent(inputs, hidden, actions), _Mixer(agents, state)
    target_agent, target_mixer = deepcopy(agent), deepcopy(mixer)
    parameters = [*agent.parameters(), *mixer.parameters()]
    optimiser = torch.optim.RMSprop(parameters, lr=5e-4, alpha=0.99, eps=1e-5)
    shape = (episodes, steps + 1, agents)
    observation = torch.randn(*shape, inputs - actions - agents)
    states, reward = torch.randn(*shape[:2], state), torch.randn(episodes, steps, 1)
    action = torch.randint(actions, (*shape, 1))
    one_hot = torch.zeros(*shape, actions).scatter_(3, action, 1.0)
    available = torch.ones(*shape, actions)
    terminated, mask = torch.zeros_like(reward), torch.ones_like(reward)
    identity, count = torch.eye(agents).expand(episodes, -1, -1), 0

    def values(network: _Agent) -> Tensor:
        memory, made = torch.zeros(episodes * agents, network.hidden), list[Tensor]()
        for step in range(steps + 1):
            last = one_hot[:, step - 1] if step else torch.zeros_like(one_hot[:, 0])
            seen = torch.cat([observation[:, step], last, identity], 2)
            output, memory = network(seen.flatten(0, 1), memory)
            made.append(output.view(episodes, agents, actions))
        return torch.stack(made, 1)

    place = torch.get_default_device()

    def update() -> None:
        nonlocal count
        with torch.device(place):
            own, later = values(agent), values(target_agent)[:, 1:]
            chosen = own[:, :-1].gather(3, action[:, :-1]).squeeze(3)
            best = own.detach().clone()
            best[available == 0] = UNAVAILABLE
            following = later.gather(3, best[:, 1:].argmax(3, keepdim=True)).squeeze(3)
            after = target_mixer(following, states[:, 1:])
            expected = (reward + 0.99 * (1.0 - terminated) * after).detach()
            error = (mixer(chosen, states[:, :-1]) - expected) * mask
            loss = error.square().sum() / mask.sum()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 10.0)
            optimiser.step()
            count += 1
            if count % PERIOD == 0:
                target_agent.load_state_dict(agent.state_dict())
                target_mixer.load_state_dict(mixer.state_dict())

    return update
