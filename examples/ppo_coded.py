"""Proximal policy optimisation of CartPole in one file, its gradients by four coded processes.

``examples/ppo.py`` is the file before; 15 lines differ. Any process may be late: the gradient is
decoded from the first rows that determine it, to the same bits. One that dies ends the pool of the
standard library; a run that goes on without it is what ``fullrank train`` has services for.

    python examples/ppo_coded.py
"""

from concurrent.futures import ProcessPoolExecutor, as_completed

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from fullrank.codes import Decoder, make_code
from fullrank.common.updates import snap

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


CODE = make_code("fractional", rows=4, units=4, tolerance=1)


def row(learner: int, agent: Agent, parts: list[Tensor]) -> np.ndarray:
    """A learner's coded vector: the sum of the gradients of its parts of the minibatch."""
    held = np.flatnonzero(CODE.matrix[learner])
    return sum(snap(gradient(agent, parts[unit]).numpy()).astype(np.float64) for unit in held)


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


def train(iterations: int, pool: ProcessPoolExecutor) -> Agent:
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
                rows = {pool.submit(row, j, agent, part.chunk(4)): j for j in range(4)}
                decoder, arriving = Decoder(CODE), as_completed(rows)
                while not decoder.decodable:
                    decoder.offer(row=rows[done := next(arriving)], vector=done.result())
                found = torch.as_tensor(decoder.decode()[0], dtype=torch.float32)
                sizes = [parameter.numel() for parameter in agent.parameters()]
                for parameter, own in zip(agent.parameters(), found.split(sizes), strict=True):
                    parameter.grad = own.view_as(parameter)
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()
        print(f"iteration {iteration}: episodes of {length:.0f} steps")
    return agent


if __name__ == "__main__":
    with ProcessPoolExecutor(4, torch.multiprocessing.get_context("spawn")) as learners:
        train(30, learners)
