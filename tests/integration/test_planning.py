"""The code changes between iterations with ``code.name = "auto"``, and the bits do not."""

from pathlib import Path

import pytest
from tests.integration.cluster import Cluster, reference_digests, resolved

from fullrank.codes import Code
from fullrank.planning import run_planner
from fullrank.planning.cluster import Cluster as Machines
from fullrank.planning.observation import Observation
from fullrank.planning.simulation import observation_of, play
from fullrank.runs.record import IterationRecord
from fullrank.stragglers import FixedK

pytestmark = pytest.mark.integration

AUTO = ("code.name=auto", "learners=6", "iterations=24")


@pytest.fixture(autouse=True)
def three_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the planner simulated times: a unit takes 20 ms, three learners are 400 ms late."""

    def simulated(record: IterationRecord, code: Code, moved: object) -> Observation:
        machines, late = Machines(unit_s=0.02), FixedK(k=3, delay_s=0.4)
        played = play(machines, code, late, iterations=[record.iteration], seed=0)
        return observation_of(played, 0, code)

    monkeypatch.setattr(run_planner, "observation_of_record", simulated)


async def test_a_run_that_plans_raises_the_tolerance_and_keeps_its_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="fullrank_controller")
    async with Cluster(tmp_path, resolved(*AUTO)) as cluster:
        cluster.serve(6)
        await cluster.finished()
    records = cluster.records()
    assert records[0].tolerance == 1
    assert max(record.tolerance for record in records) > 1
    assert records[-1].epoch >= 1
    assert cluster.digests() == reference_digests(cluster.config)
    explained = [entry.getMessage() for entry in caplog.records if "plan " in entry.getMessage()]
    assert any("instead of cyclic,tolerance=1" in each for each in explained)
