"""Services whose learners make their own samples commit the same bits as one process."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.integration.cluster import Cluster, centralised, resolved

from fullrank.common.updates import update_digest
from fullrank.config import RunConfig
from fullrank.config.code import code_of
from fullrank.rounds.decision import Decoded
from fullrank.rounds.decoding import open_round
from fullrank.runs.record import IterationRecord
from fullrank.training.worker import AssignedRow, Worker
from fullrank.wiring.training import training_of

pytestmark = pytest.mark.integration

FOOD = ("algorithm.name=darl1n", "environment.name=food_collection", "environment.agents=3")
LATE = ("stragglers.name=fixed_k", "stragglers.k=1", "stragglers.delay_s=0.1")


async def test_a_resumed_run_goes_on_with_the_same_samples_and_evaluations(
    tmp_path: Path,
) -> None:
    coded = ("code.name=cyclic", "learners=5", *LATE, "audit.every=2", "checkpoint.every=2")
    whole = resolved(*FOOD, "algorithm.evaluate_every=3", *coded)
    config = whole.config
    half = replace(whole, config=replace(config, iterations=3))
    for part in (half, whole):
        async with Cluster(tmp_path, part) as cluster:
            await cluster.train()
    assert cluster.digests() == centralised(config)[0]
    assert all(record.exact for record in cluster.records())
    evaluated = [record.return_mean is not None for record in cluster.records()]
    assert evaluated == [True, False, False, True]


NOTHING = np.empty((0, 0), np.float32)
INDEPENDENT = (*FOOD, "algorithm.data=independent", "code.name=mds", "learners=5")


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
            if (
                isinstance(decision, Decoded)
                and decision.variance == record.variance
                and update_digest(decision.digests) == record.update_digest
            ):
                break
        else:
            pytest.fail(f"no rows of {record.received} give the update {record.update_digest}")
        training.trainer.apply(decision.updates, iteration=record.iteration)
        digests.append(update_digest(decision.digests))
    return digests


async def test_of_samples_of_their_own_services_commit_what_the_same_learners_do_in_one_process(
    tmp_path: Path,
) -> None:
    """A resumed run repeats the updates of the journal, with the J that they had."""
    whole = resolved(*INDEPENDENT, *LATE, "audit.every=1", "checkpoint.every=2")
    half = replace(whole, config=replace(whole.config, iterations=3))
    for part in (half, whole):
        async with Cluster(tmp_path, part) as cluster:
            status = await cluster.train()
    records = cluster.records()
    assert cluster.digests() == replayed(whole.config, records)
    assert not any(record.exact or record.audited or record.quarantined for record in records)
    assert any("no iteration is exact: learners draw samples of" in each for each in status.caveats)
