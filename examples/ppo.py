"""Proximal policy optimisation of CartPole in one file, as a researcher has one.

``examples/ppo_coded.py`` is the same file with its gradients computed by four coded processes.

    python examples/ppo.py
"""

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

ENVS, STEPS, EPOCHS, MINIBATCHES = 8, 128, 4, 4
RATE, DISCOUNT, TRACE, CLIP, ENTROPY = 2.5e-3, 0.99, 0.95, 0.2, 0.01


class Agent(nn.Module):
    """A policy and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))


def loss_of(agent: Agent, batch: Tensor) -> Tensor:
    """The loss of rows of observation, action, log-probability, advantage and return: a sum."""
    seen, taken, before, advantage, goal = torch.split(batch, [4, 1, 1, 1, 1], 1)
    logits = agent.policy(seen).log_softmax(1)
    ratio = (logits.gather(1, taken.long()) - before).exp()
    gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    entropy = -(logits.exp() * logits).sum(1, keepdim=True)
    error = (agent.value(seen) - goal).square()
    return (0.5 * error - gain - ENTROPY * entropy).sum() / (ENVS * STEPS / MINIBATCHES)


def gradient(agent: Agent, batch: Tensor) -> Tensor:
    """The gradient of the loss, as one vector."""
    found = torch.autograd.grad(loss_of(agent, batch), list(agent.parameters()))
    return torch.cat([each.flatten() for each in found])


def collect(
    agent: Agent, world: gymnasium.vector.VectorEnv, seen: np.ndarray
) -> tuple[Tensor, np.ndarray, float]:
    """Play; returns rows of ``loss_of``, what is seen next, and the mean length of episodes."""
    rows, rewards, ends = [], np.zeros((STEPS, ENVS)), np.zeros((STEPS, ENVS))
    values = np.zeros((STEPS + 1, ENVS))
    for step in range(STEPS):
        now = torch.as_tensor(seen)
        with torch.no_grad():
            logits, values[step] = agent.policy(now).log_softmax(1), agent.value(now)[:, 0]
        taken = torch.multinomial(logits.exp(), 1)
        rows.append(torch.cat([now, taken, logits.gather(1, taken)], 1))
        seen, rewards[step], terminated, truncated, _ = world.step(taken[:, 0].numpy())
        ends[step] = terminated | truncated
    with torch.no_grad():
        values[STEPS] = agent.value(torch.as_tensor(seen))[:, 0]
    advantage = np.zeros((STEPS + 1, ENVS))
    for step in reversed(range(STEPS)):
        goes_on = 1 - ends[step]
        error = rewards[step] + DISCOUNT * goes_on * values[step + 1] - values[step]
        advantage[step] = error + DISCOUNT * TRACE * goes_on * advantage[step + 1]
    gains = advantage[:-1]
    scaled = (gains - gains.mean()) / gains.std()
    columns = torch.as_tensor(np.stack([scaled, gains + values[:-1]], -1), dtype=torch.float32)
    length = STEPS * ENVS / max(1.0, ends.sum())
    return torch.cat([torch.stack(rows), columns], 2).flatten(0, 1), seen, length


def train(iterations: int) -> Agent:
    """Train, and return the agent."""
    torch.manual_seed(1)
    agent = Agent()
    optimiser = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
    world = gymnasium.make_vec("CartPole-v1", num_envs=ENVS)
    seen, _ = world.reset(seed=1)
    for iteration in range(iterations):
        batch, seen, length = collect(agent, world, seen)
        for _ in range(EPOCHS):
            for part in batch[torch.randperm(len(batch))].chunk(MINIBATCHES):
                found = gradient(agent, part)
                sizes = [parameter.numel() for parameter in agent.parameters()]
                for parameter, own in zip(agent.parameters(), found.split(sizes), strict=True):
                    parameter.grad = own.view_as(parameter)
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()
        print(f"iteration {iteration}: episodes of {length:.0f} steps")
    return agent


if __name__ == "__main__":
    train(30)
