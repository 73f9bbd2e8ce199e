"""Agents with image observations train although one transition is larger than a message."""

import os
from pathlib import Path

import pytest
from tests.e2e.commands import (
    centralised,
    config_of,
    digests,
    fullrank,
    processes_of,
    settings,
    tracebacks,
)

from fullrank.net.channel import MESSAGE_BYTES
from fullrank.wiring import training_of

pytestmark = pytest.mark.e2e

ENVIRONMENT = """
import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

SHAPE = (512, 512, 1)

class Screens(ParallelEnv):
    possible_agents = ["left", "right"]

    def observation_space(self, agent):
        return Box(0, 255, SHAPE, np.uint8)

    def action_space(self, agent):
        return Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.images = np.random.default_rng(seed)
        return self._seen(), {}

    def _seen(self):
        return {agent: self.images.integers(0, 256, SHAPE, np.uint8) for agent in self.agents}

    def step(self, actions):
        rewards = {agent: float(actions[agent] == 1) for agent in self.agents}
        nobody = dict.fromkeys(self.agents, False)
        return self._seen(), rewards, nobody, nobody, {}
"""

SMALL = settings(
    "iterations=2",
    "collect.steps=2",
    "collect.warmup=8",
    "algorithm.batch_size=4",
    "algorithm.hidden=2",
    "replay.capacity=16",
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables by which services find the environment; this process finds it as well."""
    (tmp_path / "screens.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": os.pathsep.join(found)}


def test_transitions_larger_than_a_message_train_to_the_same_bits(
    run_dir: Path, path: dict[str, str]
) -> None:
    options = ["--run-dir", str(run_dir), "--env", "screens:Screens", *SMALL]
    outcome = fullrank("train", *options, env=path)
    assert (outcome.code, outcome.error) == (0, "")
    training = training_of(config_of(run_dir))
    assert 4 * training.collector.layout.row_size > MESSAGE_BYTES
    training.collector.close()
    assert digests(run_dir) == centralised(run_dir)
    assert tracebacks(run_dir) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("replay.capacity_bytes=4000000", "replay.capacity_bytes = 4000000 is less than one"),
        ("replay.capacity_bytes=20000000", "or lower collect.warmup"),
        ("algorithm.batch_size=1024", "lower it to 255"),
    ],
)
def test_transitions_that_replay_can_never_hold_are_one_line_and_leave_nothing(
    run_dir: Path, path: dict[str, str], setting: str, said: str
) -> None:
    options = ["--run-dir", str(run_dir), "--env", "screens:Screens", *SMALL, "--set", setting]
    outcome = fullrank("train", *options, env=path)
    [line] = outcome.error.splitlines()
    assert outcome.code == 2
    assert said in line
    assert not run_dir.exists()
    assert processes_of(run_dir) == []
