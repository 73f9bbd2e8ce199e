"""The newest policies of a run, and episodes played by them."""

from pathlib import Path
from typing import NamedTuple, Self

from fullrank.algorithms import Algorithm
from fullrank.common.types import JSON
from fullrank.config import RunConfig
from fullrank.environments import AgentSpec
from fullrank.runs.checkpoint import newest
from fullrank.runs.recovery import CHECKPOINTS
from fullrank.training.evaluation import Act, Evaluation, evaluate_and_close, random_actions
from fullrank.wiring import environment_of, training_of

COPIES = 50
"""Number of episodes played together."""


class Version(NamedTuple):
    """Version of a run's policies; versions of a later term supersede those of earlier ones."""

    term: int
    """Term in which they were saved; 0 if unknown."""
    iteration: int
    """The last iteration that they were trained on."""

    @classmethod
    def of(cls, iteration: int, facts: JSON) -> Self:
        """Version of a checkpoint's policies."""
        return cls(facts.get("term", 0), iteration)


class Trained(NamedTuple):
    """Policies of one version, with the agents that they act for."""

    version: Version
    agents: tuple[AgentSpec, ...]
    algorithm: Algorithm

    @property
    def iteration(self) -> int:
        """The last iteration that they were trained on."""
        return self.version.iteration


def trained(directory: Path, config: RunConfig) -> Trained:
    """The policies of the newest checkpoint.

    Raises:
        CheckpointUnusable: There is no usable checkpoint.
    """
    checkpoint = newest(directory / CHECKPOINTS)
    training = training_of(config)
    try:
        training.trainer.load(checkpoint.arrays)
    finally:
        training.collector.close()
    version = Version.of(checkpoint.iteration, checkpoint.facts)
    return Trained(version, training.collector.agents, training.algorithm)


def play(config: RunConfig, act: Act | None, *, episodes: int, seed: int) -> Evaluation:
    """Play whole episodes by ``act``; None is the random policy."""
    environment = environment_of(config, copies=min(episodes, COPIES))
    act = act or random_actions(environment.agents, seed=seed)
    return evaluate_and_close(environment, act, episodes, seed)
