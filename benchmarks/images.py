"""Claim: eight agents that see 84 x 84 x 3 learn from 256 steps within 2 CPU s an iteration.

IPPO and PQN with one encoder for all agents, in one process and on one thread: eight episodes of 32
steps, 2,048 images, all of which every minibatch has. An iteration is an update with its share of
the collection, a quarter of it; the environment, which draws a square, is counted.

    python benchmarks/images.py
"""

import sys
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pettingzoo
import torch
from gymnasium.spaces import Box, Discrete

from fullrank.config import load
from fullrank.local import LocalRun

CLAIM_S = 2.0
SIDE, HORIZON, COPIES, EPOCHS, COLLECTIONS = 84, 32, 8, 4, 3


class Squares(pettingzoo.ParallelEnv):  # type: ignore[misc]
    """Eight viewers, each of a bright quarter of a dark screen, whose number pays."""

    metadata: ClassVar[dict[str, Any]] = {"name": "squares"}

    def __init__(self) -> None:
        self.possible_agents = [f"viewer_{number}" for number in range(8)]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return Box(0, 255, (SIDE, SIDE, 3), np.uint8)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.random, self.steps = np.random.default_rng(seed), 0
        self.agents = [*self.possible_agents]
        return self.shown(), {agent: {} for agent in self.agents}

    def shown(self) -> dict[str, Any]:
        half = SIDE // 2
        self.bright = {agent: int(self.random.integers(4)) for agent in self.agents}
        images = {agent: np.zeros((SIDE, SIDE, 3), np.uint8) for agent in self.agents}
        for agent, bright in self.bright.items():
            row, column = divmod(bright, 2)
            images[agent][row * half :, column * half :][:half, :half] = 200
        return images

    def step(self, actions: dict[str, Any]) -> Any:
        paid = {agent: float(actions[agent] == self.bright[agent]) for agent in self.agents}
        self.steps += 1
        over = dict.fromkeys(self.agents, self.steps == HORIZON)
        infos: dict[str, Any] = {agent: {} for agent in self.agents}
        answer = self.shown(), paid, dict.fromkeys(self.agents, False), over, infos
        self.agents = [] if self.steps == HORIZON else self.agents
        return answer


def run_of(name: str) -> LocalRun:
    """Make a run whose minibatches have all episodes of a collection."""
    options = {
        "environment.name": "images:Squares",
        "environment.copies": COPIES,
        "algorithm.name": name,
        "algorithm.batch_size": COPIES,
        "algorithm.epochs": EPOCHS,
        "iterations": COLLECTIONS * EPOCHS,
    }
    return LocalRun(load(options=options).check().config, coded=False)


def main() -> int:
    torch.set_num_threads(1)
    holds = True
    print("| algorithm | weights | a step, kB | with a collection, CPU s | mean, CPU s | claim |")
    print("|---|---|---|---|---|---|")
    for name in ("ippo", "pqn"):
        run = run_of(name)
        problem, spent_s = run.training.problem, list[float]()
        weights = sum(own.size for own in problem.sections if not own.role.startswith("target_"))
        iterations, began_s = iter(run), time.process_time()
        for _ in iterations:
            spent_s.append(time.process_time() - began_s)
            began_s = time.process_time()
        mean_s = sum(spent_s[EPOCHS:]) / len(spent_s[EPOCHS:])  # the first collection warms up
        cells = f"{weights:,} | {4e-3 * problem.row_size:.0f} | {spent_s[EPOCHS]:.2f}"
        print(f"| {name} | {cells} | {mean_s:.2f} | {CLAIM_S:.0f} |", flush=True)
        holds &= mean_s <= CLAIM_S
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
