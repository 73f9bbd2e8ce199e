"""What a learner knows of its run."""

import numpy as np

from fullrank.algorithms import Algorithm
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, RunTerm
from fullrank.config import RunConfig, from_toml
from fullrank.rpc.codec import decode_agent
from fullrank.stragglers import DelayModel, delay_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring import delays_of, recipe_of
from fullrank_learner.worker import Probe, Worker, probe


class Trainee:
    """Built once, kept while the learner re-attaches to the same run."""

    def __init__(self, welcome: pb.Welcome) -> None:
        self.config: RunConfig = from_toml(welcome.configuration)
        self.key = (welcome.run, welcome.configuration)
        self.run_term = RunTerm(welcome.run, welcome.term)
        """Served last; rises when a controller of the same run follows another."""
        recipe = recipe_of(self.config)
        self.algorithm: Algorithm = recipe.make(
            [decode_agent(agent) for agent in welcome.agents],
            seed=self.config.seed,
            device=self.config.compute.device,
        )
        self.worker = Worker(self.algorithm)
        self.delays: DelayModel = delays_of(self.config)
        self.probe: Probe = probe(self.algorithm, self._probe_batch(recipe.batch_size))

    def _probe_batch(self, size: int) -> FloatArray:
        """Synthetic transitions in which every agent acts and none terminates."""
        shape = (size, self.algorithm.row_size)
        rows = stream(self.config.seed, "probe").standard_normal(shape, dtype=np.float32)
        agents = self.algorithm.units
        rows[:, -2 * agents : -agents] = 0.0
        rows[:, -agents:] = 1.0
        return rows

    def delay_s(self, iteration: int, learner: int) -> float:
        """Injected delay of this learner's return, seconds."""
        return delay_of(
            self.delays,
            seed=self.config.seed,
            iteration=iteration,
            learner=learner,
            learners=self.config.learners,
        )
