"""Services whose learners make their own samples commit the same bits as one process."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.fakes import Fault
from tests.integration.cluster import Cluster, reference_digests, resolved

from fullrank.common.updates import update_digest
from fullrank.config import RunConfig
from fullrank.local import LocalRun
from fullrank.rounds.decision import Decoded
from fullrank.rounds.opening import open_round
from fullrank.runs.record import IterationRecord
from fullrank.training.worker import AssignedRow, Worker
from fullrank.wiring import code_of, training_of

pytestmark = pytest.mark.integration

ISING = ("algorithm.name=darl1n", "algorithm.evaluate_every=3", "environment.name=ising")
FOOD = ("algorithm.name=darl1n", "environment.name=food_collection", "environment.agents=3")
LATE = ("stragglers.name=fixed_k", "stragglers.k=1", "stragglers.delay_s=0.1")


@pytest.mark.parametrize(
    "settings",
    [
        (*ISING, "code.name=ldgm", "learners=12", "audit.every=2"),
        (*FOOD, "code.name=cyclic", "learners=5", *LATE),
    ],
    ids=["ising ldgm audited", "food_collection cyclic late"],
)
async def test_samples_made_by_learners_leave_no_doubt_about_the_bits(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    async with Cluster(tmp_path, resolved(*settings)) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(cluster.config.learners)
        await cluster.finished()
    config = cluster.config
    centralised = [each.update_digest for each in LocalRun(config, coded=False)]
    assert cluster.digests() == reference_digests(config) == centralised
    assert all(record.exact for record in cluster.records())


@pytest.mark.parametrize(
    "world",
    [
        ISING,
        pytest.param(
            (*FOOD, "environment.distance=contact", "algorithm.evaluate_every=3"),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["ising", "contact distance"],
)
async def test_a_resumed_run_goes_on_with_the_same_samples_and_evaluations(
    tmp_path: Path, world: tuple[str, ...]
) -> None:
    whole = resolved(*world, "code.name=ldgm", "learners=9", "checkpoint.every=2")
    config = whole.config
    half = replace(whole, config=replace(config, iterations=3))
    for part in (half, whole):
        async with Cluster(tmp_path, part) as cluster:
            cluster.replay()
            cluster.controller()
            cluster.learners(9)
            await cluster.finished()
    assert cluster.digests() == reference_digests(config)
    evaluated = [record.return_mean is not None for record in cluster.records()]
    assert evaluated == [True, False, False, True]


NOTHING = np.empty((0, 0), np.float32)
INDEPENDENT = (*ISING, "algorithm.data=independent", "code.name=mds", "learners=11")


def replayed(config: RunConfig, records: Sequence[IterationRecord]) -> list[str]:
    """The updates that the learners of each J commit, in one process."""
    training, digests = training_of(config), []
    problem = training.algorithm.problem
    worker = Worker(problem, training.algorithm.gradients, seed=config.seed)
    assert not problem.data.exact
    for record in records:
        learners = record.code_rows // record.rows_per_learner  # a resumed run begins with fewer
        code = code_of(replace(config, learners=learners), units=len(problem.units))
        computed = {
            learner: list(
                worker.compute(
                    [AssignedRow.of(row, code.matrix[row]) for row in record.rows_of(learner)],
                    NOTHING,
                    iteration=record.iteration,
                )
            )
            for learner in record.received
        }
        # A learner of several rows sends each as it is finished: the round may end between two.
        for units in product(*(range(len(each), 0, -1) for each in computed.values())):
            round_ = open_round(problem, record.iteration, code, seed=config.seed)
            for count, (learner, finished) in zip(units, computed.items(), strict=True):
                for unit, digest, complete in finished[:count]:
                    round_.report(unit, digest, learner=learner)
                    for row, coded in complete.items():
                        round_.offer(learner=learner, row=row, coded=coded)
            decision = round_.decide()
            if isinstance(decision, Decoded) and decision.variance == record.variance:
                break
        else:
            pytest.fail(f"no rows of {record.received} have the variance {record.variance}")
        training.trainer.apply(decision.updates, iteration=record.iteration)
        digests.append(update_digest(decision.digests))
    return digests


@pytest.mark.parametrize("samples", ["resets", "episodes"])
async def test_of_samples_of_their_own_services_commit_what_the_same_learners_do_in_one_process(
    tmp_path: Path, samples: str
) -> None:
    """A resumed run repeats the updates of the journal, with the J that they had."""
    late = (*LATE, "audit.every=1", "checkpoint.every=2", f"algorithm.samples={samples}")
    whole = resolved(*INDEPENDENT, *late)
    half = replace(whole, config=replace(whole.config, iterations=3))
    for part in (half, whole):
        async with Cluster(tmp_path, part) as cluster:
            cluster.replay()
            cluster.controller()
            cluster.learners(11)
            status = await cluster.finished()
    records = cluster.records()
    assert cluster.digests() == replayed(whole.config, records)
    assert not any(record.exact or record.audited or record.quarantined for record in records)
    assert any("no iteration is exact: learners draw samples of" in each for each in status.caveats)


async def test_with_a_limit_of_zero_services_wait_for_everybody_as_one_process_does(
    tmp_path: Path,
) -> None:
    settings = resolved(*INDEPENDENT, "algorithm.max_variance=0.0", *LATE)
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(11)
        await cluster.finished()
    assert cluster.digests() == reference_digests(cluster.config)
    assert all(sorted(record.received) == list(range(11)) for record in cluster.records())


async def test_a_learner_that_hangs_is_waited_for_until_the_deadline_alone(tmp_path: Path) -> None:
    settings = resolved(
        *INDEPENDENT,
        "algorithm.max_variance=0.0",
        "iterations=1",
        "controller.deadline_s=3.0",
        "controller.undecodable=wait",
    )
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        cluster.controller()
        await cluster.fake(Fault.STALL)
        cluster.learners(10)
        await cluster.finished()
    (record,) = cluster.records()
    assert (record.late, len(record.received)) == ((0,), 10)
