"""Construction of containers from the configuration tree."""

import torch

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.container_learner import ContainerLearner, Diversity
from fullrank.algorithms.values import ValueLearner
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive
from fullrank.config.tree import RunConfig
from fullrank.networks.images import image_of
from fullrank.networks.modules import flat_size
from fullrank.training.container import Container, EpisodeBuffer, HandOver, ReturnPriority
from fullrank.training.heads import Heads
from fullrank.wiring.plugins import algorithm_config_of

FLOOR, EXPONENT = 0.1, 0.6
"""Priority of an episode of the least return, and exponent alpha of priorities in a buffer, of
[CMARL]."""
SHARE, CAPACITY = 0.6, 3400
"""Share of the episodes that a container hands over to replay, eta / 100, and number of episodes in
its buffer, of [CMARL]."""


def head_size_of(config: RunConfig, environment: EnvironmentSpec) -> int:
    """Return the entries of a container's head.

    Raises:
        ConfigError: The algorithm has no heads.
    """
    with torch.device("meta"):
        return flat_size(_learner_of(config, environment).network(environment).fc2)


def container_of(
    config: RunConfig, environment: EnvironmentSpec, *, number: int, heads: Heads
) -> Container:
    """Build a container.

    Args:
        config: The configuration.
        environment: Agents of the environment.
        number: Its number among the containers.
        heads: Those of all containers.

    Raises:
        ConfigError: The algorithm has no heads.
    """
    settings = config.containers
    return Container(
        number,
        learner=ContainerLearner(
            _learner_of(config, environment),
            environment,
            diversity=Diversity(),
            seed=derive(config.seed, "container", number),
            device=config.compute.device,
        ),
        buffer=EpisodeBuffer(CAPACITY, exponent=EXPONENT),
        priority=ReturnPriority(low=settings.low, high=settings.high, floor=FLOOR),
        hand_over=HandOver(SHARE, seed=config.seed, container=number),
        batch_size=settings.batch_size,
        seed=config.seed,
        heads=heads,
    )


def _learner_of(config: RunConfig, environment: EnvironmentSpec) -> ValueLearner:
    learner = algorithm_config_of(config)
    if not isinstance(learner, ValueLearner):
        raise ConfigError(
            f"{config.algorithm.name} has no network of action values, whose last layer containers "
            "learn: use --algorithm qmix, qplex, vdn or iql"
        )
    if learner.td_errors:
        raise ConfigError(
            "algorithm.td_errors: containers hand episodes over by their returns; leave it false"
        )
    if image_of(learner.model, environment.agents) is not None:
        raise ConfigError(
            "containers learn over a trunk without convolutions, and these agents see images: set "
            "algorithm.model = 'mlp', or collectors.containers = false"
        )
    return learner
