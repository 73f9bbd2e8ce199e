"""A run goes on from its store on another machine, and its former controller shows no more."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from tests.addresses import free_address
from tests.buckets import bucket
from tests.fakes import Fault
from tests.integration.cluster import (
    Cluster,
    foresee_audits,
    reference_digests,
    resolved,
)
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import StaleTerm
from fullrank.config import Resolved
from fullrank.runs.checkpoint import newest
from fullrank.runs.journal_format import decode_first
from fullrank.runs.objects import DirectoryObjects
from fullrank.runs.record import read_records
from fullrank.runs.store import SharedStore
from fullrank_controller import driver

pytestmark = pytest.mark.integration


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of the store, in an object store; other tests have it in a directory."""
    with bucket(tmp_path, monkeypatch) as url:
        yield f"{url}/one"


def stored(place: str, *overrides: str) -> Resolved:
    return resolved(
        "code.name=uncoded",
        "learners=3",
        "iterations=8",
        "checkpoint.every=3",
        "checkpoint.keep=1",
        f"store.url={place}",
        *overrides,
    )


async def test_a_run_goes_on_in_an_empty_directory_once_that_of_its_controller_is_lost(
    tmp_path: Path, place: str
) -> None:
    """The log has no update of the iterations after the checkpoint: learners compute them again."""
    addresses = [f"{name}.address={free_address()}" for name in ("controller", "replay")]
    settings = stored(place, *addresses, "checkpoint.every=8")
    one, other = Cluster(tmp_path / "one", settings), Cluster(tmp_path / "other", settings)
    async with one, other:
        one.replay()
        first = one.controller()
        await one.fake(Fault.STALL, at=4)  # keeps the fifth round open until its controller ends
        one.learners(2)
        await one.committed(4)
        published = one.digests()
        first.stop.set()
        first.task.cancel()
        await asyncio.wait({first.task})
        for folder in ("journal", "checkpoints", "history"):
            shutil.rmtree(one.run_dir / folder)
        second = other.controller()
        one.learner()  # dials the address that the second controller takes
        await other.finished()
        await second.end()
    expected = reference_digests(settings.config)
    assert published == expected[:4]
    assert other.digests() == expected
    assert {record.term for record in other.records()[4:]} == {2}


async def test_a_controller_that_lives_ends_once_another_one_goes_on_with_its_run(
    tmp_path: Path, place: str
) -> None:
    addresses = [f"replay.address={free_address()}", "controller.heartbeat_s=0.05"]
    settings = stored(place, *addresses)
    one, other = Cluster(tmp_path / "one", settings), Cluster(tmp_path / "other", settings)
    async with one, other:
        one.replay()
        first = one.controller()
        one.learners(2)  # one too few
        await eventually(lambda: (one.run_dir / "run.json").exists(), what="the first one begins")
        other.controller()
        with pytest.raises(StaleTerm, match="term 2 of "):  # by the store, or by replay
            await first.task
        other.learners(3)
        await other.finished()
    assert other.digests() == reference_digests(settings.config)


async def test_a_run_goes_on_before_its_store_has_answered_and_shows_nothing_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second entry takes all that was applied while the first one was written."""
    answers, begun, applied, create = Event(), Event(), list[str](), DirectoryObjects.create
    journalled = list[str]()

    def slow(objects: DirectoryObjects, name: str, content: bytes) -> bool:
        if name.startswith("log/") and "segment" in decode_first(content, origin=name)[0]:
            journalled.append(name)
            if len(journalled) == 1:
                begun.set()
                assert answers.wait(WAIT_S)
        return create(objects, name, content)

    monkeypatch.setattr(DirectoryObjects, "create", slow)
    monkeypatch.setattr(driver, "reach", applied.append)
    settings = stored(str(tmp_path / "store"), "checkpoint.every=8", "store.lag_s=1000")
    async with Cluster(tmp_path / "run", settings) as cluster:
        cluster.serve(learners=3)
        await eventually(lambda: applied.count("update.applied") == 8, what="all are applied")
        assert begun.is_set()
        assert cluster.records() == []
        status = await cluster.status_when(lambda status: True, what="a status")
        assert status.iterations_committed == 0
        answers.set()
        await cluster.finished()
    assert cluster.digests() == reference_digests(settings.config)
    assert len(journalled) == 2
    entries = {f"log/{path.name}" for path in (tmp_path / "store" / "log").iterdir()}
    assert not entries & {*journalled}  # which the checkpoint superseded


async def test_what_is_taken_back_is_taken_back_in_the_store(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A liar's iteration is withdrawn; the next controller knows only the repeated one."""
    foresee_audits(monkeypatch)
    overrides = ("code.name=cyclic", "code.tolerance=1", "learners=4", "audit.every=3")
    settings = stored(place, *overrides, "checkpoint.keep=9")
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
    (tmp_path / "other").mkdir()
    store = SharedStore(place, tmp_path / "other", keep=9)
    assert store.log.read() is not None
    store.begin("", digest="", last=0, instance=1)
    found = read_records(tmp_path / "other" / "metrics.jsonl")
    assert [record.update_digest for record in found] == reference_digests(settings.config)
    assert newest(tmp_path / "other" / "checkpoints").iteration == 7
