"""Sums of units through real services: bits of the centralised run, sizes and restarts.

``test_faults.py`` and ``test_audits.py`` have the scenarios that hold for each unit as well.
"""

from pathlib import Path

import pytest
from tests.fakes import Fault
from tests.integration.cluster import SUM, Cluster, centralised, resolved, tiny
from tests.registries import shipped

from fullrank.codes import Code, codes
from fullrank.planning import Observation
from fullrank.planning.cluster import Cluster as Machines
from fullrank.planning.planned_run import observation_of
from fullrank.planning.simulation import play
from fullrank.runs.record import IterationRecord
from fullrank.stragglers import FixedK
from fullrank.wiring import training_of
from fullrank_controller.membership import auto_code

pytestmark = pytest.mark.integration

GROUPS = (*SUM, "algorithm.groups=2")
"""T = I (x) 1^T: two sums of two units each."""
LATE = ("stragglers.name=bernoulli", "stragglers.probability=0.4", "stragglers.delay_s=0.05")
"""Learners are late at random, so that J differs from round to round."""


@pytest.mark.filterwarnings("ignore:vandermonde")
@pytest.mark.parametrize("code", shipped(codes))
@pytest.mark.parametrize("target", [SUM, GROUPS], ids=["sum", "groups"])
async def test_every_code_commits_the_bits_of_the_centralised_run(
    tmp_path: Path, target: tuple[str, ...], code: str
) -> None:
    """``unit/faultlab/test_summed_toy.py`` has other numbers of learners, without services."""
    settings = tiny(*target, *LATE, f"code.name={code}", "learners=6")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert all(record.exact for record in cluster.records())


@pytest.mark.parametrize(
    ("code", "learners"),
    [
        pytest.param("fractional", 4, marks=pytest.mark.smoke),
        ("cyclic", 5),
        pytest.param("mds", 8, marks=pytest.mark.thorough),
    ],
)
async def test_micro_batches_of_agents_commit_the_bits_of_the_centralised_run(
    tmp_path: Path, code: str, learners: int
) -> None:
    """Parts of 6, 5 and 5 transitions; audits compute units again, from their own transitions."""
    parts = ("algorithm.micro_batches=3", f"code.name={code}", f"learners={learners}")
    async with Cluster(tmp_path, resolved(*parts, *LATE, "audit.every=2")) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert all(record.exact for record in cluster.records())


async def test_learners_fetch_the_transitions_of_their_parts_alone(tmp_path: Path) -> None:
    parts = ("algorithm.micro_batches=3", "environment.agents=1", "code.name=uncoded", "learners=3")
    async with Cluster(tmp_path, resolved(*parts)) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(3)
        status = await cluster.finished()
    row_bytes = 4 * training_of(cluster.config).problem.row_size
    assert sorted(each.batch_bytes // row_bytes for each in status.learners) == [5, 5, 6]
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize(
    ("target", "learners", "tolerance"),
    [
        pytest.param(SUM, 2, 1, marks=pytest.mark.smoke),
        (SUM, 1, 0),
        (SUM, 3, 0),
        (GROUPS, 2, 0),
        (GROUPS, 3, 0),
    ],
)
async def test_fewer_learners_than_units_suffice_for_their_sums(
    tmp_path: Path, target: tuple[str, ...], learners: int, tolerance: int
) -> None:
    sizes = (f"learners={learners}", f"code.tolerance={tolerance}")
    settings = tiny(*target, *LATE, "code.name=fractional", *sizes)
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert {record.code_rows for record in cluster.records()} == {learners}


async def test_the_planner_turns_to_a_code_of_the_sum_where_most_learners_are_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner is given simulated times: no code recovers four units from three learners."""

    def simulated(record: IterationRecord, code: Code, moved: object) -> Observation:
        late = FixedK(k=5, delay_s=0.4)
        played = play(Machines(unit_s=0.02), code, late, iterations=[record.iteration], seed=0)
        return observation_of(played, 0, code)

    monkeypatch.setattr(auto_code, "observation_of_record", simulated)
    settings = tiny(*SUM, "code.name=auto", "learners=8", "iterations=24")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    records = cluster.records()
    assert (records[0].code, records[-1].code) == ("cyclic", "fractional")
    assert cluster.outcome() == centralised(cluster.config)


async def test_learners_that_leave_for_good_leave_enough_for_the_sum(tmp_path: Path) -> None:
    settings = tiny(*SUM, "code.name=fractional", "learners=6", "code.tolerance=1")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        cluster.controller()
        for _ in range(4):
            await cluster.fake(Fault.DIE_BEFORE, at=2)
        cluster.learners(2)
        await cluster.finished()
    assert cluster.outcome() == centralised(cluster.config)
    assert [record.code_rows for record in cluster.records()] == [6, 6, 6, 2]


@pytest.mark.parametrize("target", [SUM, GROUPS], ids=["sum", "groups"])
@pytest.mark.parametrize("every", [1, 100])
async def test_a_restarted_controller_goes_on_from_its_journal_with_the_same_bits(
    tmp_path: Path, every: int, target: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ("code.name=fractional", "learners=5")
    settings = tiny(*target, *code, f"checkpoint.every={every}", "environment.horizon=7")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.run_out_of_disk(2, monkeypatch)
    assert len(cluster.records()) == 2
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert [record.term for record in cluster.records()] == [1, 1, 2, 2]
