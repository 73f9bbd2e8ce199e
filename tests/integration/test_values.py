"""Value-based teams, and other sums of units, through real services: the centralised bits."""

from pathlib import Path

import pytest
from tests.integration.cluster import SUM, Cluster, centralised, tiny

from fullrank.config import Resolved
from fullrank.wiring.training import training_of

pytestmark = pytest.mark.integration

SMALL = (
    "algorithm.micro_batches=3",
    "algorithm.batch_size=8",
    "algorithm.hidden=12",
    "algorithm.target_every=2",
    "algorithm.exploration_steps=200",
)
GROUPS = (*SUM, "algorithm.groups=2")
"""T = I (x) 1^T: two sums of two units each."""
LATE = ("stragglers.name=bernoulli", "stragglers.probability=0.4", "stragglers.delay_s=0.05")
"""Learners are late at random, so that J differs from round to round."""


def resolved(name: str, *overrides: str) -> Resolved:
    """The tiny configuration of a value-based team, with overrides."""
    return tiny(f"algorithm.name={name}", *SMALL, *overrides)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            resolved("qmix", *LATE, "code.name=fractional", "learners=4"), marks=pytest.mark.smoke
        ),
        resolved("iql", *LATE, "code.name=cyclic", "learners=5"),
        tiny(*GROUPS, *LATE, "code.name=mds", "learners=6"),
    ],
    ids=["qmix", "iql", "sums"],
)
async def test_services_commit_the_bits_of_the_centralised_run(
    tmp_path: Path, settings: Resolved
) -> None:
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


"""Learners are late at random, so that J differs from round to round."""
