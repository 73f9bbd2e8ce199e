"""Coded MADDPG of NumPy and torch alone: the whole idea in one file.

Three agents learn to cover three landmarks. In each iteration every learner computes the updates
of the agents that its row of the code names, and returns one linear combination of them. The
controller decodes from the first rows that determine all updates, and waits for nobody else. The
run ends with the bits of the run that computes every update in one place.
"""

import copy
import hashlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional

AGENTS, OBSERVED, ACTIONS, HORIZON, BATCH = 3, 14, 5, 25, 256
DISCOUNT, TARGET_RATE, LEARNING_RATE = 0.95, 0.01, 3e-3
GRID = 2.0**-30
"""Updates are multiples of it: sums with small whole coefficients are exact in float64."""
CODE = np.vander(np.arange(-2.0, 3.0), AGENTS, increasing=True)
"""C, a row for each of five learners. Any three rows are a basis: two learners may be lost."""
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])

torch.set_num_threads(1)


class Cover:
    """Agents with velocities and landmarks in a plane; all are paid for the landmarks covered."""

    def reset(self, random):
        self.place, self.landmarks = random.uniform(-1, 1, (2, AGENTS, 2))
        self.speed, self.time = np.zeros((AGENTS, 2)), 0
        return self.observe()

    def step(self, actions):
        self.speed = 0.75 * self.speed + 0.1 * MOVES[actions]
        self.place = self.place + self.speed
        self.time += 1
        away = np.linalg.norm(self.place[:, None] - self.landmarks, axis=-1)
        return self.observe(), -away.min(axis=0).sum(), self.time == HORIZON

    def observe(self):
        others = [np.delete(self.place, agent, 0) - self.place[agent] for agent in range(AGENTS)]
        to_landmarks = self.landmarks - self.place[:, None]
        parts = (self.place, self.speed, to_landmarks, others)
        return np.hstack([np.reshape(part, (AGENTS, -1)) for part in parts]).astype(np.float32)


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


class Agent:
    """An actor, a critic that sees everybody, and the targets of both."""

    def __init__(self):
        self.actor = network(OBSERVED, ACTIONS)
        self.critic = network(AGENTS * (OBSERVED + ACTIONS), 1)
        self.targets = copy.deepcopy((self.actor, self.critic))
        self.online = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimiser = torch.optim.Adam(self.online, LEARNING_RATE)


def update_of(agent, team, batch):
    """u_i: the gradient of one agent's losses, a pure function of parameters and minibatch."""
    seen, acted, reward, then = batch
    with torch.no_grad():
        next_actions = [
            functional.softmax(each.targets[0](then[:, i]), -1) for i, each in enumerate(team)
        ]
        ahead = team[agent].targets[1](torch.cat([then.flatten(1), *next_actions], 1))
        goal = reward[:, None] + DISCOUNT * ahead
    value = team[agent].critic(torch.cat([seen.flatten(1), acted.flatten(1)], 1))
    chosen = acted.clone()
    logits = team[agent].actor(seen[:, agent])
    chosen[:, agent] = functional.softmax(logits, -1)
    gain = team[agent].critic(torch.cat([seen.flatten(1), chosen.flatten(1)], 1)).mean()
    actor, critic = (list(each.parameters()) for each in (team[agent].actor, team[agent].critic))
    gradients = torch.autograd.grad(1e-3 * (logits**2).mean() - gain, actor)
    gradients += torch.autograd.grad(functional.mse_loss(value, goal), critic)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    flat = flat * min(1.0, 0.5 / float(flat.norm()))  # no entry exceeds the bound of the grid
    return np.round(flat.double().numpy() / GRID) * GRID


def apply(agent, update):
    sizes = [parameter.numel() for parameter in agent.online]
    for parameter, part in zip(agent.online, torch.from_numpy(update).float().split(sizes)):
        parameter.grad = part.view_as(parameter).clone()
    agent.optimiser.step()
    for target, online in zip(agent.targets, (agent.actor, agent.critic)):
        for old, new in zip(target.parameters(), online.parameters()):
            old.data.lerp_(new.data, TARGET_RATE)


def decode(rows, vectors):
    """Solve C_J u = y for the updates; rounding to the grid removes the error, which is checked."""
    updates = np.round(np.linalg.solve(CODE[rows], vectors) / GRID) * GRID
    assert (CODE[rows] @ updates == vectors).all()
    return updates


def one_place(team, batch, _):
    return np.stack([update_of(agent, team, batch) for agent in range(AGENTS)])


def learners(team, batch, random):
    """Five learners answer in some order; the first three answers decide."""
    rows, vectors = [], []
    for learner in random.permutation(len(CODE)):
        terms = [CODE[learner, i] * update_of(i, team, batch) for i in CODE[learner].nonzero()[0]]
        vectors.append(sum(terms))
        rows.append(learner)
        if np.linalg.matrix_rank(CODE[rows]) == AGENTS:
            return decode(rows, np.stack(vectors))


def train(compute, iterations=200):
    """Train a team; returns the digest of its parameters."""
    torch.manual_seed(0)
    play, draw, late = (np.random.default_rng(seed) for seed in range(3))
    world, team, table, returns = Cover(), [Agent() for _ in range(AGENTS)], [], [0.0]
    seen = world.reset(play)
    for iteration in range(iterations):
        while len(table) < BATCH or len(table) % HORIZON or len(table) // HORIZON < 10 + iteration:
            with torch.no_grad():
                odds = [
                    functional.softmax(each.actor(torch.from_numpy(seen[i])), -1).double()
                    for i, each in enumerate(team)
                ]
            actions = [play.choice(ACTIONS, p=(each / each.sum()).numpy()) for each in odds]
            then, reward, ended = world.step(actions)
            table.append((seen, np.eye(ACTIONS, dtype=np.float32)[actions], reward, then))
            returns[-1] += reward
            seen = world.reset(play) if ended else then
            returns += [0.0] * ended
        drawn = [table[i] for i in draw.integers(len(table), size=BATCH)]
        batch = [torch.tensor(np.stack(column)).float() for column in zip(*drawn)]
        for agent, update in zip(team, compute(team, batch, late)):
            apply(agent, update)
        if iteration % 50 == 49:
            print(f"{iteration + 1:4}  return {np.mean(returns[-51:-1]):7.1f}")
    bits = b"".join(part.detach().numpy() for each in team for part in each.online)
    return hashlib.sha256(bits).hexdigest()[:16]


if __name__ == "__main__":
    print("coded      ", train(learners))
    print("centralised", train(one_place))
