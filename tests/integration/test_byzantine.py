"""With ``audit.byzantine = f`` no f learners that lie together have a wrong bit committed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes import Fault
from tests.integration.cluster import NETWORKS, SUM, Cluster, centralised, tiny
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import CodeError, Corrupted
from fullrank.config.code import code_of
from fullrank.runs.verdicts import read_verdicts
from fullrank_controller.rounds.auditor import Auditor

pytestmark = pytest.mark.integration

THRICE = (*NETWORKS, "code.name=cyclic", "learners=4", "code.tolerance=2", "audit.byzantine=2")
"""Three of four learners hold each unit."""
PAIRS = (*SUM, "code.name=fractional", "learners=4", "code.tolerance=1", "audit.byzantine=1")
"""Two learners return each of two rows."""
ALONE = (*NETWORKS, "code.name=uncoded", "learners=3", "audit.spot=1.0")


async def _attacked(cluster: Cluster, liars: int, *, at: int, honest: int) -> None:
    cluster.serve()
    for number in range(liars):
        await cluster.fake(Fault.WRONG_UPDATE, at=at, domain=f"liar-{number}")
    await cluster.ready(liars)  # none of them becomes a spare
    for number in range(honest):
        cluster.learner_in(f"host-{number}")


def convicted(run_dir: Path) -> list[int]:
    """Learners that were convicted, also while a decision without them was committed."""
    verdicts = read_verdicts(run_dir)
    assert {verdict.kind for verdict in verdicts} <= {"convicted"}
    return sorted(verdict.party.learner for verdict in verdicts)


@pytest.mark.parametrize(
    ("settings", "liars", "honest"),
    [(THRICE, 2, 4), (PAIRS, 1, 3)],
    ids=["two-of-three", "sum"],
)
async def test_what_liars_agree_on_is_not_committed_and_they_are_named(
    tmp_path: Path,
    settings: Sequence[str],
    liars: int,
    honest: int,
) -> None:
    async with Cluster(tmp_path, tiny(*settings, "audit.every=0")) as cluster:
        await _attacked(cluster, liars, at=1, honest=honest)
        status = await cluster.finished()
    assert status.term == 1  # nothing was taken back
    assert convicted(tmp_path) == list(range(liars))
    assert cluster.outcome() == centralised(cluster.config)


async def test_a_lie_that_comes_after_the_computed_value_is_not_committed_either(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "fullrank_controller")
    async with Cluster(tmp_path, tiny(*ALONE, "audit.every=0")) as cluster:
        cluster.serve()
        late, _ = await cluster.fake(Fault.WRONG_LATE, at=1, domain="liar")
        await cluster.ready(1)  # it becomes no spare
        for number in range(3):
            cluster.learner_in(f"host-{number}")
        await eventually(
            lambda: "recomputed iteration=1 unit=2" in caplog.text, what="the computed values"
        )
        late.release.set()
        status = await cluster.finished()
    assert status.term == 1  # nothing was taken back
    assert convicted(tmp_path) == [0]
    assert cluster.outcome() == centralised(cluster.config)


async def test_a_run_whose_controller_cannot_compute_stops_and_names_the_dispute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Auditor, "computes_alike", lambda auditor: False)
    settings = tiny(*THRICE, "learners=3", "audit.every=0")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        controller = cluster.controller()
        for number in range(2):
            await cluster.fake(Fault.WRONG_UPDATE, at=1, domain=f"liar-{number}")
        cluster.learner_in("host")
        with pytest.raises(Corrupted, match="iteration 1"):
            await asyncio.wait_for(controller.task, WAIT_S)
        committed = cluster.digests()
    assert committed == centralised(cluster.config)[0][:1]


def test_a_code_that_cannot_bear_it_out_is_refused_in_one_line() -> None:
    for settings, found in ((THRICE, 2), (PAIRS, 1)):
        config = tiny(*settings, f"code.tolerance={found - 1}", "learners=5").config
        with pytest.raises(CodeError, match=rf"raise code.tolerance to {found}"):
            code_of(config, units=4)
