"""From the configuration tree to the objects that every driver needs."""

from fullrank.config import RunConfig
from fullrank.training import Training


def training_of(config: RunConfig) -> Training:
    """The controller's side of a run.

    Raises:
        ConfigError: The configuration names something that does not exist or cannot be.
        EnvironmentFailed: The environment cannot be made.
    """
    return Training(
        seed=config.seed,
        environment=config.environment.name,
        environment_params=config.environment.params,
        agents=config.environment.agents,
        algorithm=config.algorithm.name,
        algorithm_params=config.algorithm.params,
        device=config.compute.device,
        copies=config.environment.copies,
        steps=config.collect.steps,
        warmup=config.collect.warmup,
        warmup_copies=config.collect.warmup_copies,
    )
