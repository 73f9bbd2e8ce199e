"""Learning in virtual time: real episodes and gradients, and durations as numbers.

It predicts a cluster's results and their times before it is rented: collectors, containers and the
centraliser are the objects of the services, without their processes. The centralised update is
committed; a code adds the time of its round, which ``fullrank simulate`` tells. Equal
configurations give equal histories, and keyed collection with lag 0 gives the bits of the run in
one process.
"""

import torch

from fullrank.algorithms.values import ValueLearner
from fullrank.common.errors import ConfigError
from fullrank.config.tree import RunConfig
from fullrank.planning.virtual_course import VirtualCourse, VirtualHistory
from fullrank.planning.virtual_free import FreeVirtualRun
from fullrank.planning.virtual_keyed import keyed_history
from fullrank.planning.virtual_time import VirtualDurations
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.container import Container
from fullrank.training.heads import Heads
from fullrank.wiring import Training, algorithm_config_of, block_player_of, training_of
from fullrank.wiring.containers import container_of, head_size_of
from fullrank.wiring.plugins import spec_of_agents


def learn_in_virtual_time(
    config: RunConfig,
    durations: VirtualDurations,
    *,
    until_s: float,
    every_s: float,
    episodes: int,
) -> VirtualHistory:
    """Run until the configured iterations are committed, or the virtual time is over.

    Args:
        config: The run; without collectors one process plays all copies, in lockstep.
        durations: Durations of steps, updates and wires.
        until_s: End, virtual seconds.
        every_s: Virtual time between two evaluations, seconds.
        episodes: Episodes of an evaluation.

    Raises:
        ConfigError: The algorithm does not learn from whole episodes, or something is inconsistent.
    """
    torch.set_num_threads(config.compute.threads)
    learner = algorithm_config_of(config)
    if not isinstance(learner, ValueLearner):
        raise ConfigError(
            f"{config.algorithm.name} does not learn from whole episodes, and --learn plays whole "
            "ones: use --algorithm qmix, vdn or iql"
        )
    training = training_of(config)
    course = VirtualCourse(config, training, every_s=every_s, episodes=episodes)
    layout = training.problem.episodes
    assert layout is not None
    try:
        if isinstance(training.collector.collection, KeyedCollection):
            return keyed_history(config, training, course, layout, durations, until_s=until_s)
        collector = training.collector
        player = block_player_of(
            config, collector.agents, state_size=collector.state_size, masked=collector.masked
        )
        run = FreeVirtualRun(
            config,
            training,
            player,
            _containers_of(config, training) if config.collectors.containers else [],
            course=course,
            durations=durations,
        )
        try:
            return run.history(until_s=until_s)
        finally:
            player.close()
    finally:
        training.collector.close()


def _containers_of(config: RunConfig, training: Training) -> list[Container]:
    """Build the containers of a run, one for each collector, which share their heads."""
    collector = training.collector
    spec = spec_of_agents(
        config, collector.agents, state_size=collector.state_size, masked=collector.masked
    )
    heads = Heads(head_size_of(config, spec))
    return [
        container_of(config, spec, number=number, heads=heads)
        for number in range(max(1, config.collectors.count))
    ]
