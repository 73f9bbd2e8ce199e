"""TorchRL's QMIX loss with a recurrent agent: the peer of ``qmix_update.py``.

``QMixerLoss`` with double Q-learning off (it has none), its own hypernetworks, of which those of
weights have one layer, a shared network of two linear layers around ``nn.GRU``, RMSprop and a
clipped global norm.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor, nn
from torchrl.modules import QMixer, QValueModule
from torchrl.objectives import QMixerLoss, ValueEstimators

logging.getLogger("torchrl").setLevel(logging.WARNING)  # otherwise it logs to the page


class _Agent(nn.Module):
    """Linear - ReLU - GRU - linear over (B, T, n, inputs)."""

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.fc1, self.rnn = nn.Linear(inputs, hidden), nn.GRU(hidden, hidden, batch_first=True)
        self.fc2 = nn.Linear(hidden, actions)

    def forward(self, observation: Tensor) -> Tensor:
        batch, _, agents, _ = observation.shape
        x = self.fc1(observation.transpose(1, 2).flatten(0, 1)).relu()
        values: Tensor = torch.unflatten(self.fc2(self.rnn(x)[0]), 0, (batch, agents))
        return values.transpose(1, 2)


def make_update(
    *, agents: int, inputs: int, state: int, actions: int, episodes: int, steps: int, hidden: int
) -> Callable[[], None]:
    """Return one update on a random batch of episodes of equal length, on the default device."""
    torch.manual_seed(0)
    network = TensorDictModule(
        _Agent(inputs, hidden, actions),
        in_keys=[("agents", "observation")],
        out_keys=[("agents", "action_value")],
    )
    chooser = QValueModule(
        action_value_key=("agents", "action_value"),
        out_keys=[("agents", name) for name in ("action", "action_value", "chosen_action_value")],
        action_space="categorical",
    )
    place = torch.get_default_device()
    mixer = TensorDictModule(
        QMixer(state_shape=(state,), mixing_embed_dim=32, n_agents=agents, device=place),
        in_keys=[("agents", "chosen_action_value"), "state"],
        out_keys=["chosen_action_value"],
    )
    loss = QMixerLoss(TensorDictSequential(network, chooser), mixer, action_space="categorical")
    loss.set_keys(
        action=("agents", "action"),
        action_value=("agents", "action_value"),
        local_value=("agents", "chosen_action_value"),
    )
    loss.make_value_estimator(ValueEstimators.TD0, gamma=0.99)
    shape = (episodes, steps)
    parts: dict[str, Any] = {
        "agents": {
            "observation": torch.randn(*shape, agents, inputs),
            "action": torch.randint(actions, (*shape, agents)),
        },
        "state": torch.randn(*shape, state),
        "next": {
            "agents": {"observation": torch.randn(*shape, agents, inputs)},
            "state": torch.randn(*shape, state),
            "reward": torch.randn(*shape, 1),
            "done": torch.zeros(*shape, 1, dtype=torch.bool),
            "terminated": torch.zeros(*shape, 1, dtype=torch.bool),
        },
    }
    batch = TensorDict(parts, batch_size=shape)
    optimiser = torch.optim.RMSprop(loss.parameters(), lr=5e-4, alpha=0.99, eps=1e-5)

    def update() -> None:
        optimiser.zero_grad()
        loss(batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(loss.parameters(), 10.0)
        optimiser.step()

    return update
