"""The simulator predicts the controller's times, both in virtual time."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.faultlab.simulation.controller import SimulatedController
from tests.faultlab.simulation.learner import LearnerBehaviour, LearnerStream, SimulatedLearner
from tests.faultlab.simulation.link import LinkFaults
from tests.faultlab.simulation.peers import numerics_of
from tests.faultlab.simulation.replay import SimulatedReplay
from tests.faultlab.simulation.virtual_loop import VirtualLoop

from fullrank.common.seeding import stream
from fullrank.config import RunConfig, load
from fullrank.config.code import code_of
from fullrank.config.plugins import spec_of
from fullrank.planning.cluster import Cluster as Machines
from fullrank.planning.simulation import simulate
from fullrank.runs.events import EventLog
from fullrank.runs.record import IterationRecord
from fullrank.stragglers.base import lateness_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.plugins import algorithm_of, delays_of

pytestmark = pytest.mark.integration

UNIT_S, NEGLIGIBLE_S = (0.2, 0.21, 0.22, 0.23), 1e-3


class TimedLearner(SimulatedLearner):
    """Pauses for the delay of the model, then takes its ``UNIT_S`` for a unit, or longer."""

    config: RunConfig
    began_at: float

    async def _work(self, stream: LearnerStream, learner: int, assignment: pb.Assignment) -> None:
        iteration, [row] = assignment.ids.iteration, assignment.rows
        if iteration == 0:
            self.began_at = asyncio.get_running_loop().time()
        late = lateness_of(
            delays_of(self.config),
            seed=self.config.seed,
            iteration=iteration,
            learner=learner,
            learners=self.config.learners,
            units=self.config.environment.agents,
            time_s=asyncio.get_running_loop().time() - self.began_at,
        )
        compute_s = UNIT_S[learner] * len(row.units) * late.stretch(row.units)
        await asyncio.sleep(late.delay_s + compute_s)
        for message in self._contribution(learner, assignment, LearnerBehaviour.OK):
            stream.send(message)


async def played(config: RunConfig, run_dir: Path) -> list[IterationRecord]:
    """One controller, its learners and its replay service, from the first iteration to the last."""
    records: list[IterationRecord] = []
    replay = SimulatedReplay(stream(0, "replay"), 0.0, EventLog())
    controller = SimulatedController(config, run_dir, replay, publish=records.append)
    link = LinkFaults(draws=stream(0, "wire"), delay_s=0.0)
    environment = spec_of(config)
    living = []  # the event loop alone would forget its tasks
    for _ in range(config.learners):
        learner = TimedLearner(
            connect=lambda: controller.connect(link),
            algorithm=algorithm_of(config, environment),
            seed=config.seed,
            replay=replay,
            behaviour=lambda iteration: LearnerBehaviour.OK,
            draws=stream(0, "learner"),
            ready=numerics_of(config, environment),
            event_log=EventLog(),
        )
        learner.config = config
        living.append(asyncio.create_task(learner.run()))
    try:
        await controller.serve()
    finally:
        controller.kill()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
    return records


MODELS = {
    "fixed_k": ["k=1", "delay_s=0.6"],
    "slow_learners": ["k=2", "factor=2.5", "probability=0.5"],
    "slow_units": ["k=1", "factor=3.5", "probability=0.5"],
    "trace": ["path={trace}"],
}
TRACE = """time_s,learner,delay_s,factor
0,2,0.7,
2,2,,3.5
"""


@pytest.mark.smoke
@pytest.mark.parametrize("code", ["uncoded", "cyclic"])
@pytest.mark.parametrize("model", MODELS)
def test_every_round_takes_as_long_as_predicted(tmp_path: Path, code: str, model: str) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    settings = (
        f"code.name={code}",
        "learners=4",
        "iterations=9",
        "algorithm.name=toy",
        "collect.warmup=8",
        "environment.copies=1",
        f"stragglers.name={model}",
        *(f"stragglers.{text.format(trace=tmp_path / 'trace.csv')}" for text in MODELS[model]),
    )
    config = load(None, environ={}, overrides=settings).check().config
    loop = VirtualLoop()
    records = loop.run_until_complete(played(config, tmp_path))
    loop.close()
    predicted = simulate(
        Machines(unit_s=UNIT_S),
        code_of(config, units=config.environment.agents),
        delays_of(config),
        iterations=config.iterations,
        seed=config.seed,
    )
    measured = [record.round_s for record in records]
    np.testing.assert_allclose(measured, predicted.round_s, rtol=0, atol=NEGLIGIBLE_S)
    for record, received in zip(records, predicted.received, strict=True):
        assert sorted(record.received) == sorted(received)
