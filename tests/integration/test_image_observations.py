"""Agents with image observations train although one transition is larger than a message."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv
from tests.integration.cluster import TINY, Cluster, centralised

from fullrank.config import load
from fullrank.net.channel import MESSAGE_BYTES
from fullrank.wiring.training import training_of

pytestmark = pytest.mark.integration

SHAPE = (512, 512, 1)
SMALL = (
    f"environment.name={__name__}:Screens",
    "iterations=1",
    "code.name=uncoded",
    "learners=2",
    "collect.steps=2",
    "collect.warmup=8",
    "algorithm.batch_size=4",
    "algorithm.hidden=2",
    "replay.capacity=16",
)


class Screens(ParallelEnv):  # type: ignore[misc]
    """Two agents that see noise, and are paid for one of three actions."""

    possible_agents: ClassVar = ["left", "right"]
    metadata: ClassVar = {"name": "screens"}

    def observation_space(self, agent: str) -> Box:
        return Box(0, 255, SHAPE, np.uint8)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self.images = np.random.default_rng(seed)
        return self._seen(), {}

    def _seen(self) -> dict[str, Any]:
        return {agent: self.images.integers(0, 256, SHAPE, np.uint8) for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        rewards = {agent: float(actions[agent] == 1) for agent in self.agents}
        nobody = dict.fromkeys(self.agents, False)
        return self._seen(), rewards, nobody, nobody, {}


async def test_transitions_larger_than_a_message_train_to_the_same_bits(tmp_path: Path) -> None:
    endless = [each for each in TINY if not each.startswith("environment.horizon")]
    settings = load(None, environ={}, overrides=[*endless, *SMALL]).check()
    training = training_of(settings.config)
    assert 4 * training.collector.layout.row_size > MESSAGE_BYTES
    training.collector.close()
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
