"""A standby takes over from the mirror, and the controller that it followed publishes no more."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.buckets import bucket
from tests.fakes import Fault
from tests.integration.cluster import (
    Cluster,
    Service,
    foresee_audits,
    reference_digests,
    resolved,
)
from tests.waiting import eventually

from fullrank.common.errors import ConfigError
from fullrank.config import Resolved
from fullrank.runs.checkpoint import newest
from fullrank.runs.mirror import take_over
from fullrank.runs.record import read_records
from fullrank_controller.server import serve

pytestmark = pytest.mark.integration


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of the mirror, in an object store; other tests have it in a directory."""
    with bucket(tmp_path, monkeypatch) as url:
        yield f"{url}/one"


def mirrored(tmp_path: Path, *overrides: str) -> Resolved:
    return resolved(
        "code.name=uncoded",
        "learners=3",
        "iterations=8",
        "checkpoint.every=3",
        "checkpoint.keep=1",
        f"checkpoint.mirror={tmp_path / 'mirror'}",
        *overrides,
    )


def standby(cluster: Cluster) -> Service:
    stop = asyncio.Event()
    launch = replace(cluster.launch, standby=True)
    return cluster.start(stop, serve(launch, cluster.run_dir, stop))


async def test_a_standby_goes_on_from_the_mirror_of_a_controller_whose_directory_is_lost(
    tmp_path: Path, place: str
) -> None:
    addresses = [f"{name}.address={free_address()}" for name in ("controller", "replay")]
    settings = mirrored(tmp_path, *addresses, f"checkpoint.mirror={place}")
    watching = ("controller.heartbeat_s=0.1", "controller.lost_after_s=2.0")
    elsewhere = mirrored(tmp_path, *addresses, *watching, f"checkpoint.mirror={place}")
    one, other = Cluster(tmp_path / "one", settings), Cluster(tmp_path / "other", elsewhere)
    async with one, other:
        one.replay()
        first = one.controller()
        await one.fake(Fault.STALL, at=4)  # keeps the fifth round open until its controller ends
        one.learners(2)
        await one.committed(4)
        first.stop.set()
        first.task.cancel()
        await asyncio.wait({first.task})
        published = one.digests()
        for folder in ("journal", "checkpoints", "history"):
            shutil.rmtree(one.run_dir / folder)
        waiting = standby(other)
        one.learner()  # dials the address that the standby takes
        await other.finished()
        await waiting.end()
    expected = reference_digests(settings.config)
    assert published == expected[:4]
    assert other.digests() == expected
    terms = [record.term for record in other.records()]
    assert terms == [1] * 4 + [3] * 4  # the standby claimed 2, and its controller 3


async def test_what_is_taken_back_is_taken_back_in_the_mirror(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A liar's iteration is withdrawn; the next controller knows only the repeated one."""
    foresee_audits(monkeypatch)
    overrides = ("code.name=cyclic", "code.tolerance=1", "learners=4", "audit.every=3")
    settings = mirrored(tmp_path, *overrides, f"checkpoint.mirror={place}", "checkpoint.keep=9")
    async with Cluster(tmp_path / "one", settings) as cluster:
        cluster.serve()
        await cluster.fake(Fault.WRONG_UPDATE, at=2)  # the only holder of unit 0
        late, _ = await cluster.fake(Fault.STALL, at=2)
        cluster.learners(2)
        await cluster.committed(3)
        late.release.set()
        await eventually(lambda: "condemned reason" in caplog.text, what="condemned")
        cluster.learners(2)
        await cluster.finished()
    take_over(place, tmp_path / "other")
    found = read_records(tmp_path / "other" / "metrics.jsonl")
    assert [record.update_digest for record in found] == reference_digests(settings.config)
    assert newest(tmp_path / "other" / "checkpoints").iteration == 7


async def test_a_standby_that_could_never_take_over_is_refused(tmp_path: Path) -> None:
    for settings, message in (
        (resolved(f"controller.address={free_address()}"), "checkpoint.mirror, which is empty"),
        (mirrored(tmp_path), "whose port is not 0"),
    ):
        cluster = Cluster(tmp_path / "run", settings)
        with pytest.raises(ConfigError, match=message):
            await standby(cluster).task
