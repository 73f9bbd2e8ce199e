"""The QMIX learner of the PyMARL lineage, restated in plain torch: a peer of ``qmix_update.py``.

It follows ``QLearner`` of PyMARL [Samvelyan19] and of its descendants: ``nn.GRUCell`` is stepped
over time, with inputs that are put together in every step; hypernetworks of two layers; double
Q-learning among available actions; masks of padding; RMSprop and a clipped global norm. As there,
the target network's graph is recorded, and cut off by ``detach``.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

EMBED, HYPERNET = 32, 64


class _Agent(nn.Module):
    """Linear - ReLU - GRU cell - linear over the rows of one step."""

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.fc1, self.rnn = nn.Linear(inputs, hidden), nn.GRUCell(hidden, hidden)
        self.fc2 = nn.Linear(hidden, actions)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.rnn(functional.relu(self.fc1(inputs)), state)
        return self.fc2(state), state


class _Mixer(nn.Module):
    """Monotonic mixing by hypernetworks of the state."""

    def __init__(self, agents: int, state: int) -> None:
        super().__init__()
        self.agents = agents

        def hypernet(outputs: int) -> nn.Module:
            return nn.Sequential(
                nn.Linear(state, HYPERNET), nn.ReLU(), nn.Linear(HYPERNET, outputs)
            )

        self.hyper_w_1, self.hyper_w_final = hypernet(EMBED * agents), hypernet(EMBED)
        self.hyper_b_1 = nn.Linear(state, EMBED)
        self.V = nn.Sequential(nn.Linear(state, EMBED), nn.ReLU(), nn.Linear(EMBED, 1))

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        episodes, state = len(values), state.flatten(0, 1)
        first = self.hyper_w_1(state).abs().view(-1, self.agents, EMBED)
        bias = self.hyper_b_1(state).view(-1, 1, EMBED)
        hidden = functional.elu(torch.bmm(values.reshape(-1, 1, self.agents), first) + bias)
        last = self.hyper_w_final(state).abs().view(-1, EMBED, 1)
        joint = torch.bmm(hidden, last) + self.V(state).view(-1, 1, 1)
        total: Tensor = joint.view(episodes, -1, 1)
        return total


class _Learner:
    """Online and target networks, and one update on a batch of padded episodes."""

    def __init__(
        self, *, agents: int, inputs: int, state: int, actions: int, hidden: int, discount: float
    ) -> None:
        self._agents, self._hidden, self._discount = agents, hidden, discount
        self._agent, self._mixer = _Agent(inputs, hidden, actions), _Mixer(agents, state)
        self._target_agent, self._target_mixer = copy.deepcopy((self._agent, self._mixer))
        self._parameters = [*self._agent.parameters(), *self._mixer.parameters()]
        self._optimiser = torch.optim.RMSprop(self._parameters, lr=5e-4, alpha=0.99, eps=1e-5)

    def _values(self, agent: _Agent, batch: dict[str, Tensor]) -> Tensor:
        """Compute the values of all actions, shape (B, T + 1, n, actions), step by step."""
        episodes, steps, agents, actions = batch["available"].shape
        state = batch["observation"].new_zeros(episodes * agents, self._hidden)
        identity = torch.eye(agents).expand(episodes, -1, -1)
        values = []
        for step in range(steps):
            last = batch["last_action"][:, step]
            inputs = torch.cat([batch["observation"][:, step], last, identity], 2)
            value, state = agent(inputs.flatten(0, 1), state)
            values.append(value.view(episodes, agents, actions))
        return torch.stack(values, dim=1)

    def train(self, batch: dict[str, Tensor]) -> None:
        """Update the parameters once."""
        reward, terminated = batch["reward"][:, :-1], batch["terminated"][:, :-1]
        mask = batch["filled"][:, :-1].clone()
        mask[:, 1:] *= 1 - terminated[:, :-1]
        unavailable = batch["available"] == 0
        values = self._values(self._agent, batch)
        chosen = values[:, :-1].gather(3, batch["action"][:, :-1]).squeeze(3)
        target_values = self._values(self._target_agent, batch)[:, 1:]
        judge = values.detach().masked_fill(unavailable, -9999999)[:, 1:]
        best = target_values.gather(3, judge.argmax(3, keepdim=True)).squeeze(3)
        next_value = self._target_mixer(best, batch["state"][:, 1:]).detach()
        target = reward + self._discount * (1 - terminated) * next_value
        error = (self._mixer(chosen, batch["state"][:, :-1]) - target) * mask
        loss = (error**2).sum() / mask.sum()
        self._optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, 10)
        self._optimiser.step()


def make_update(
    *,
    agents: int,
    observation: int,
    state: int,
    actions: int,
    episodes: int,
    steps: int,
    hidden: int,
) -> Callable[[], None]:
    """Return one update on a random batch of episodes of equal length."""
    torch.manual_seed(0)
    shape = (episodes, steps + 1)
    action = torch.randint(actions, (*shape, agents, 1))
    one_hot = functional.one_hot(action[..., 0], actions).float()
    batch = {
        "observation": torch.randn(*shape, agents, observation),
        "state": torch.randn(*shape, state),
        "available": torch.ones(*shape, agents, actions),
        "action": action,
        "last_action": functional.pad(one_hot[:, :-1], (0, 0, 0, 0, 1, 0)),
        "reward": torch.randn(*shape, 1),
        "terminated": torch.zeros(*shape, 1),
        "filled": torch.ones(*shape, 1),
    }
    learner = _Learner(
        agents=agents,
        inputs=observation + actions + agents,
        state=state,
        actions=actions,
        hidden=hidden,
        discount=0.99,
    )
    return lambda: learner.train(batch)
