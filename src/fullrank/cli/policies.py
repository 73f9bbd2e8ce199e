"""A run's newest policies, and how they play."""

from pathlib import Path
from typing import NamedTuple, Self

from fullrank.algorithms import Algorithm
from fullrank.common.types import JSON
from fullrank.config import RunConfig
from fullrank.environments import AgentSpec
from fullrank.runs.checkpoint import newest
from fullrank.runs.recovery import CHECKPOINTS
from fullrank.training.rollouts import Act, Evaluation, evaluate_and_close, random_actions
from fullrank.wiring import environment_of, training_of

COPIES = 50
"""Episodes played at a time."""


class Version(NamedTuple):
    """Which of a run's policies, in order: what a later term publishes supersedes."""

    term: int
    """0 where it is not known."""
    iteration: int
    """The last one that they learnt from."""

    @classmethod
    def of(cls, iteration: int, facts: JSON) -> Self:
        """That of a checkpoint."""
        return cls(facts.get("term", 0), iteration)


class Trained(NamedTuple):
    """What a checkpoint holds of the policies."""

    version: Version
    agents: tuple[AgentSpec, ...]
    algorithm: Algorithm

    @property
    def iteration(self) -> int:
        """The last one that they learnt from."""
        return self.version.iteration


def trained(directory: Path, config: RunConfig) -> Trained:
    """The policies of the newest checkpoint.

    Raises:
        CheckpointUnusable: There is none, or none that can be used.
    """
    checkpoint = newest(directory / CHECKPOINTS)
    training = training_of(config)
    try:
        training.load_algorithm(checkpoint.arrays)
    finally:
        training.close()
    version = Version.of(checkpoint.iteration, checkpoint.facts)
    return Trained(version, training.agents, training.algorithm)


def play(config: RunConfig, act: Act | None, *, episodes: int, seed: int) -> Evaluation:
    """Whole episodes by ``act``; None is the random policy."""
    environment = environment_of(config, copies=min(episodes, COPIES))
    act = act or random_actions(environment.agents, seed=seed)
    return evaluate_and_close(environment, act, episodes, seed)
