"""TorchRL's DDPG loss, wired as BenchMARL wires MADDPG: the peer of ``fast_update.py``.

Separate networks per agent, centralised critics, continuous actions, a backward pass and an Adam
step per loss, gradient clipping, soft target updates, sampling from a ``LazyTensorStorage``.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers import RandomSampler
from torchrl.modules import MultiAgentMLP, ProbabilisticActor, TanhDelta
from torchrl.objectives import DDPGLoss, SoftUpdate, ValueEstimators

logging.getLogger("torchrl").setLevel(logging.WARNING)  # otherwise it logs to the page

OBSERVATION, ACTION = ("agents", "observation"), ("agents", "action")


def network(
    agents: int,
    inputs: int,
    outputs: int,
    hidden: int,
    *,
    centralised: bool = False,
    shared: bool = False,
) -> Any:
    """Perceptrons of all agents; a centralised one sees what all see, a shared one is for all."""
    return MultiAgentMLP(
        n_agent_inputs=inputs,
        n_agent_outputs=outputs,
        n_agents=agents,
        centralized=centralised,
        share_params=shared,
        depth=2,
        num_cells=hidden,
        activation_class=nn.ReLU,
    )


def _loss(agents: int, observation: int, actions: int, hidden: int) -> DDPGLoss:
    parameters = ("agents", "param")
    actor = ProbabilisticActor(
        module=TensorDictModule(
            network(agents, observation, actions, hidden),
            in_keys=[OBSERVATION],
            out_keys=[parameters],
        ),
        in_keys=[parameters],
        out_keys=[ACTION],
        distribution_class=TanhDelta,
        distribution_kwargs={"low": -1.0, "high": 1.0},
        return_log_prob=False,
    )
    joined = ("agents", "observation_action")
    critic = TensorDictSequential(
        TensorDictModule(
            lambda o, a: torch.cat([o, a], dim=-1), in_keys=[OBSERVATION, ACTION], out_keys=[joined]
        ),
        TensorDictModule(
            network(agents, observation + actions, 1, hidden, centralised=True),
            in_keys=[joined],
            out_keys=[("agents", "state_action_value")],
        ),
    )
    loss = DDPGLoss(actor_network=actor, value_network=critic, delay_value=True, loss_function="l2")
    loss.set_keys(
        state_action_value=("agents", "state_action_value"),
        reward=("agents", "reward"),
        priority=("agents", "td_error"),
        done=("agents", "done"),
        terminated=("agents", "terminated"),
    )
    loss.make_value_estimator(ValueEstimators.TD0, gamma=0.95)
    return loss


def _buffer(
    agents: int, observation: int, actions: int, batch: int, capacity: int, device: str
) -> Any:
    """Build a full buffer of the entries that BenchMARL's collector stores for one group."""

    def transitions(size: int) -> TensorDict:
        flag = torch.zeros(size, agents, 1, dtype=torch.bool)
        done = {"done": flag, "terminated": flag}
        now = {
            "observation": torch.randn(size, agents, observation),
            "param": torch.randn(size, agents, actions),
            "action": torch.rand(size, agents, actions) * 1.98 - 0.99,
        }
        after = {
            "observation": torch.randn(size, agents, observation),
            "reward": torch.randn(size, agents, 1),
            **done,
        }
        return TensorDict({"agents": now, "next": {"agents": after}}, batch_size=[size])

    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(capacity, device=device),
        sampler=RandomSampler(),
        batch_size=batch,
        priority_key=("agents", "td_error"),
    )
    block = min(10_000, capacity)
    for _ in range(capacity // block):
        buffer.extend(transitions(block))
    return buffer


def make_update(
    *,
    agents: int,
    observation: int,
    actions: int,
    hidden: int,
    batch: int,
    capacity: int,
    device: str = "cpu",
) -> Callable[[], None]:
    """Build a model update of all agents with its sample, as BenchMARL's optimiser loop."""
    loss = _loss(agents, observation, actions, hidden).to(device)
    buffer = _buffer(agents, observation, actions, batch, capacity, device)
    updater = SoftUpdate(loss, tau=0.01)
    parameters = {
        "loss_actor": list(loss.actor_network_params.flatten_keys().values()),
        "loss_value": list(loss.value_network_params.flatten_keys().values()),
    }
    optimisers = {name: torch.optim.Adam(p, lr=0.01) for name, p in parameters.items()}

    def update() -> None:
        sample = buffer.sample()
        values = loss(sample)
        logged = values.detach()
        for name, optimiser in optimisers.items():
            values[name].backward()
            norm = nn.utils.clip_grad_norm_(parameters[name], 0.5)
            logged.set(f"grad_norm_{name}", norm)
            optimiser.step()
            optimiser.zero_grad()
        buffer.update_tensordict_priority(sample)
        updater.step()

    return update
