"""Value-based teams through real services: bits of the centralised run, restarts, evaluation."""

import logging
from pathlib import Path

import pytest
from tests.fakes import Fault
from tests.integration.cluster import TINY, Cluster, centralised, foresee_audits, tiny
from tests.waiting import eventually

from fullrank.config import Resolved, load
from fullrank.local import LocalRun
from fullrank.runs.checkpoint import newest
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.wiring import environment_of, training_of

pytestmark = pytest.mark.integration

SMALL = (
    "algorithm.micro_batches=3",
    "algorithm.batch_size=8",
    "algorithm.hidden=12",
    "algorithm.target_every=2",
    "algorithm.exploration_steps=200",
)
LATE = ("stragglers.name=bernoulli", "stragglers.probability=0.4", "stragglers.delay_s=0.05")
"""Learners are late at random, so that J differs from round to round."""


def resolved(name: str, *overrides: str) -> Resolved:
    """The tiny configuration of a value-based team, with overrides."""
    return tiny(f"algorithm.name={name}", *SMALL, *overrides)


@pytest.mark.parametrize(
    ("name", "code", "learners"),
    [
        pytest.param("qmix", "fractional", 4, marks=pytest.mark.smoke),
        ("qmix", "cyclic", 5),
        ("qmix", "fractional", 2),
        ("vdn", "mds", 4),
        ("iql", "fractional", 6),
    ],
)
async def test_services_commit_the_bits_of_the_centralised_run(
    tmp_path: Path, name: str, code: str, learners: int
) -> None:
    settings = resolved(name, *LATE, f"code.name={code}", f"learners={learners}")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert all(record.exact for record in cluster.records())


@pytest.mark.parametrize(
    ("batch_size", "units", "episodes"),
    [(6, 3, [2, 2, 2]), (5, 4, [0, 1, 2, 2]), (6, 1, [6])],
    ids=["alike", "one-without-episodes", "all"],
)
async def test_learners_fetch_the_episodes_of_their_units_alone(
    tmp_path: Path, batch_size: int, units: int, episodes: list[int]
) -> None:
    sizes = (f"algorithm.batch_size={batch_size}", f"algorithm.micro_batches={units}")
    code = ("code.name=uncoded", f"learners={units}")
    async with Cluster(tmp_path, resolved("qmix", *sizes, *code)) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(units)
        status = await cluster.finished()
    episode_bytes = 4 * 6 * training_of(cluster.config).problem.row_size  # of five steps
    assert sorted(each.batch_bytes // episode_bytes for each in status.learners) == episodes
    assert sum(each.batch_bytes for each in status.learners) == batch_size * episode_bytes
    assert cluster.outcome() == centralised(cluster.config)


async def test_learners_know_the_size_of_the_environment_s_state(tmp_path: Path) -> None:
    horizonless = [each for each in TINY if not each.startswith("environment.horizon")]
    game = ("environment.name=two_step_game", "environment.agents=0")
    team = ("algorithm.name=qmix", *SMALL, "code.name=fractional", "learners=4")
    settings = load(environ={}, overrides=[*horizonless, *game, *team]).check()
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize(
    "fault", [Fault.WRONG_VECTOR, Fault.WRONG_DIGEST, Fault.WRONG_UPDATE, Fault.WRONG_BATCH]
)
async def test_a_wrong_learner_among_three_holders_is_named_and_its_sum_never_committed(
    tmp_path: Path, fault: Fault
) -> None:
    """Learners 0 to 2 hold the same units; the round waits for one of the learners 3 to 5."""
    code = ("code.name=fractional", "code.tolerance=2", "learners=6")
    async with Cluster(tmp_path, resolved("qmix", *code, "algorithm.micro_batches=4")) as cluster:
        cluster.replay()
        cluster.controller()
        faults = [fault, Fault.OK, Fault.OK, *(3 * [Fault.STALL])]
        fakes = [(await cluster.fake(each))[0] for each in faults]
        await cluster.status_when(
            lambda status: [each.answered for each in status.learners] == 3 * [True] + 3 * [False],
            what="one group answered",
        )
        for fake in fakes:
            fake.release.set()
        status = await cluster.finished()
    assert [bool(each.quarantined) for each in status.learners] == [True] + 5 * [False]
    assert [record.quarantined for record in cluster.records()] == [(0,), (), (), ()]
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize("fault", [Fault.WRONG_VECTOR, Fault.WRONG_DIGEST])
async def test_others_recompute_the_units_of_a_corrupt_vector_and_its_author_is_named(
    tmp_path: Path, fault: Fault
) -> None:
    code = ("code.name=fractional", "code.tolerance=0", "learners=3")
    async with Cluster(tmp_path, resolved("qmix", *code)) as cluster:
        cluster.replay()
        cluster.controller()
        await cluster.fake(fault)
        cluster.learners(2)
        status = await cluster.finished()
    assert [each.host == "fake" for each in status.learners if each.quarantined] == [True]
    assert [record.attempt for record in cluster.records()] == [1, 0, 0, 0]
    assert cluster.outcome() == centralised(cluster.config)


async def test_a_wrong_micro_batch_in_a_committed_sum_is_rolled_back_and_its_author_convicted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal names the episodes from which the units are computed again."""
    foresee_audits(monkeypatch)
    caplog.set_level(logging.DEBUG, "fullrank_controller")
    code = ("code.name=fractional", "code.tolerance=1", "learners=4", "iterations=5")
    audits = ("algorithm.micro_batches=4", "audit.every=3", "checkpoint.every=100")
    async with Cluster(tmp_path, resolved("qmix", *code, *audits)) as cluster:
        cluster.replay()
        cluster.controller()
        await cluster.fake(Fault.WRONG_BATCH, at=2)
        late, _ = await cluster.fake(Fault.STALL, at=2)
        cluster.learners(2)
        await cluster.committed(3)  # the audit awaits the late reports now
        late.release.set()
        await eventually(lambda: "rolled_back" in caplog.text, what="rolled back")
        cluster.learners(2)
        await cluster.finished()
    assert "convicted learner=0" in caplog.text
    assert caplog.text.count("convicted") == 1
    assert [record.term for record in cluster.records()] == [1, 1, 2, 2, 2]
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize("every", [1, 100])
async def test_a_restarted_controller_goes_on_with_the_same_bits(
    tmp_path: Path, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ("code.name=fractional", "learners=4")
    settings = resolved("qmix", *code, f"checkpoint.every={every}")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.run_out_of_disk(2, monkeypatch)
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert [record.term for record in cluster.records()] == [1, 1, 2, 2]


async def test_a_checkpoint_is_evaluated_as_the_run_that_wrote_it(tmp_path: Path) -> None:
    settings = resolved("qmix", "code.name=fractional", "learners=4")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    restored, run = training_of(cluster.config), LocalRun(cluster.config, coded=False)
    run.train()
    checkpoint = newest(cluster.run_dir / "checkpoints")
    restored.load(checkpoint.arrays, resume_at=checkpoint.iteration + 1)
    returns = [
        evaluate(environment_of(cluster.config, copies=3), Greedy(actor), 4, 0).returns.tolist()
        for actor in (restored.algorithm.actor, run.training.algorithm.actor)
    ]
    assert returns[0] == returns[1]
