"""The recorded digests hold on every host of a run: on disk, and by learners over the network."""

from pathlib import Path

import pytest
from tests.conformance.test_golden_runs import RUNS, place, records
from tests.integration.cluster import TINY, Cluster
from tests.integration.test_local import run

from fullrank.config import Resolved, load
from fullrank.local import LocalRun

pytestmark = pytest.mark.integration

LEARNERS = 3
BY_ONE = sorted(
    RUNS.keys() - {"darl1n-independent"}
)  # its rows are decoded, and J decides its bits
BY_LEARNERS = {"maddpg", "qmix-keyed"}
"""Runs that every suite takes over the network; the others show the same of more algorithms."""


def settled(name: str, *overrides: str) -> Resolved:
    """A recorded run with the deadlines and addresses of a test."""
    services = [each for each in TINY if each.startswith(("controller.", "replay.d", "metrics."))]
    addresses = [each for each in TINY if "127.0.0.1" in each]
    return load(options=RUNS[name], overrides=[*services, *addresses, *overrides]).check()


def recorded(settings: Resolved, name: str) -> list[str]:
    """The update digests of a record."""
    reference = LocalRun(settings.config, coded=False)
    known = records(name).get(place(reference))
    reference.training.collector.close()
    if known is None:
        pytest.skip("no record of this processor, torch and NumPy")
    return known[:-1]


@pytest.mark.parametrize("name", BY_ONE)
async def test_a_run_on_disk_has_the_bits_of_its_record(name: str, tmp_path: Path) -> None:
    settings = settled(name)
    expected = recorded(settings, name)
    records_ = await run(tmp_path, settings)
    assert [record.update_digest for record in records_] == expected


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in BY_LEARNERS else pytest.mark.thorough)
        for name in BY_ONE
    ],
)
async def test_a_run_by_learners_has_the_bits_of_its_record(name: str, tmp_path: Path) -> None:
    settings = settled(name, f"learners={LEARNERS}")
    expected = recorded(settings, name)
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(LEARNERS)
        await cluster.finished()
        assert cluster.digests() == expected
