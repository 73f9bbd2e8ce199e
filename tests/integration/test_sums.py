"""Sums of units through real services: bits of the centralised run, sizes and restarts.

``test_faults.py`` and ``test_audits.py`` have the scenarios that hold for each unit as well.
"""

from pathlib import Path

import pytest
from tests.integration.cluster import SUM, Cluster, centralised, tiny

pytestmark = pytest.mark.integration

GROUPS = (*SUM, "algorithm.groups=2")
"""T = I (x) 1^T: two sums of two units each."""
LATE = ("stragglers.name=bernoulli", "stragglers.probability=0.4", "stragglers.delay_s=0.05")
"""Learners are late at random, so that J differs from round to round."""


async def test_a_code_of_units_commits_the_bits_of_their_sums(tmp_path: Path) -> None:
    """``unit/faultlab/test_summed_toy.py`` has every code, without services."""
    settings = tiny(*GROUPS, *LATE, "code.name=mds", "learners=6")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert all(record.exact for record in cluster.records())
