"""Value-based teams, and other sums of units, through real services: the centralised bits."""

from pathlib import Path

import pytest
from tests.integration.cluster import SUM, Cluster, centralised, tiny

from fullrank.config import Resolved
from fullrank.wiring import training_of

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
        ("iql", "cyclic", 5),
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


async def test_learners_fetch_the_episodes_of_their_units_alone(tmp_path: Path) -> None:
    batch_size, units, episodes = 5, 4, [0, 1, 2, 2]
    sizes = (f"algorithm.batch_size={batch_size}", f"algorithm.micro_batches={units}")
    code = ("code.name=uncoded", f"learners={units}")
    async with Cluster(tmp_path, resolved("qmix", *sizes, *code)) as cluster:
        cluster.serve(units)
        status = await cluster.finished()
    episode_bytes = 4 * 6 * training_of(cluster.config).problem.row_size  # of five steps
    assert sorted(each.batch_bytes // episode_bytes for each in status.learners) == episodes
    assert sum(each.batch_bytes for each in status.learners) == batch_size * episode_bytes
    assert cluster.outcome() == centralised(cluster.config)


GROUPS = (*SUM, "algorithm.groups=2")
"""T = I (x) 1^T: two sums of two units each."""

"""Learners are late at random, so that J differs from round to round."""


async def test_a_code_of_units_commits_the_bits_of_their_sums(tmp_path: Path) -> None:
    """``unit/faultlab/test_summed_toy.py`` has every code, without services."""
    settings = tiny(*GROUPS, *LATE, "code.name=mds", "learners=6")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert all(record.exact for record in cluster.records())
