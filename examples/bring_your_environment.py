"""Train on your own environment, here a PettingZoo Parallel environment.

Three walkers on a line are rewarded for being close together; only the first observes all of them.
To train it as services: ``fullrank train --env bring_your_environment:Rendezvous``.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from fullrank.config import load
from fullrank.local import LocalRun

STEPS = 20

Observations = dict[str, np.ndarray[Any, Any]]


class Rendezvous(ParallelEnv):  # type: ignore[misc]
    """Each walker steps left, rests or steps right."""

    metadata = {"name": "rendezvous_v0"}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = ["guide_0", "walker_0", "walker_1"]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Box:
        return Box(-np.inf, np.inf, (len(self.observed(agent)),))

    def action_space(self, agent: str) -> Discrete:
        return Discrete(3)

    def observed(self, agent: str) -> list[int]:
        """Indices of the observed positions: a walker observes only the guide and itself."""
        index = self.possible_agents.index(agent)
        return [0, index] if index else [0, 1, 2]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, dict[str, Any]]]:
        self.position = np.random.default_rng(seed).uniform(-1, 1, 3)
        self.agents, self.step_number = list(self.possible_agents), 0
        return self.observe(), {agent: {} for agent in self.agents}

    def observe(self) -> Observations:
        return {
            agent: self.position[self.observed(agent)].astype(np.float32) for agent in self.agents
        }

    def step(self, actions: dict[str, int]) -> tuple[Any, ...]:
        self.position += 0.1 * (np.array([actions[agent] for agent in self.agents]) - 1)
        self.step_number += 1
        over = self.step_number == STEPS
        result: tuple[Any, ...] = (
            self.observe(),
            dict.fromkeys(self.agents, -float(np.ptp(self.position))),
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, over),
            {agent: {} for agent in self.agents},
        )
        self.agents = [] if over else self.agents
        return result


OPTIONS = {
    "iterations": 100,
    "environment.name": "bring_your_environment:Rendezvous",
    "environment.agents": 0,
    "learners": 4,
    "stragglers.name": "fixed_k",
    "collect.steps": STEPS,
    "collect.warmup": 2000,
    "collect.warmup_copies": 8,
    "algorithm.batch_size": 128,
}


def main() -> None:
    run = LocalRun(load(options=OPTIONS).check().config)
    returns = [iteration.return_mean for iteration in run if iteration.return_mean is not None]
    print(f"return of the first ten iterations {np.mean(returns[:10]):.1f}")
    print(f"return of the last ten iterations  {np.mean(returns[-10:]):.1f}")


if __name__ == "__main__":
    main()
