"""Rows of replay: a run whose machines are all lost goes on from its store to the same bits."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.addresses import free_address
from tests.buckets import bucket
from tests.certificates import certify
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.integration.collecting import ACTORS
from tests.integration.collecting import settings as collected
from tests.integration.test_free import FREE, held, services, trained, verified
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import Corrupted, NotFound, StorageFailed
from fullrank.common.seeding import stream
from fullrank.config import Resolved
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.file_format import CHECKS_AT
from fullrank.runs.ending import lasting_caveats
from fullrank.runs.object_store import StoredObjects
from fullrank.runs.objects import DirectoryObjects
from fullrank_replay.server import serve as serve_replay

pytestmark = pytest.mark.integration


def stored(place: str | Path, *overrides: str) -> Resolved:
    """A run of two learners, whose table has evicted its first rows after an iteration."""
    return resolved(
        "code.name=uncoded",
        "learners=2",
        "iterations=60",
        "replay.capacity=70",
        "checkpoint.every=3",
        "checkpoint.keep=2",
        f"store.url={place}",
        *overrides,
    )


class Gate:
    """Writes of every store in this process, of which so many more succeed."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: type[Any]) -> None:
        self.left = 10**9
        for name in ("put", "create", "remove"):
            patch.setattr(kind, name, self.gated(getattr(kind, name)))

    def gated(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(objects: Any, *what: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise StorageFailed("the machine is dead")
            return write(objects, *what)

        return wrapped


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch, DirectoryObjects)


async def test_rows_that_are_damaged_while_a_run_goes_on_end_it_by_name(tmp_path: Path) -> None:
    """Learners fail to draw them again and again; the controller asks replay why none returns."""
    async with Cluster(tmp_path, resolved("learners=2", "iterations=1000000")) as cluster:
        cluster.replay()
        controller = cluster.controller()
        cluster.learners(2)
        await cluster.status_when(
            lambda status: status.iterations_committed > 1, what="two iterations are committed"
        )
        (table,) = (tmp_path / "replay").rglob("*.table")
        with table.open("r+b") as file:
            file.seek(CHECKS_AT)
            file.write(bytes(4 * cluster.config.replay.capacity))
        with pytest.raises(Corrupted, match="is not what was stored"):
            await asyncio.wait_for(controller.task, WAIT_S)


async def lose(
    run_dir: Path, settings: Resolved, gate: Gate, writes: int, *, collectors: int = 0
) -> None:
    """Begin or go on with a run on machines that end after so many writes to the store."""
    async with Cluster(run_dir, settings) as cluster:
        gate.left = writes
        controller = services(cluster, collectors=collectors)
        await eventually(lambda: gate.left < 0, what="the store is gone")
        assert gate.left < 0
        with pytest.raises(StorageFailed, match="the machine is dead"):
            await asyncio.wait_for(controller.task, WAIT_S)
        controller.stop.set()
    gate.left = 10**9
    shutil.rmtree(run_dir)


async def finish(run_dir: Path, settings: Resolved) -> list[str]:
    """Go on with a run on new machines to its end; returns its lasting caveats."""
    async with Cluster(run_dir, settings) as cluster:
        await cluster.train()
    assert len(cluster.records()) == 60
    return lasting_caveats(run_dir)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with bucket(tmp_path, monkeypatch) as url:
        yield f"{url}/one"


async def test_a_run_whose_machines_are_all_lost_has_the_bits_of_an_undisturbed_one(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, gate = stored(place), Gate(monkeypatch, StoredObjects)
    draws = stream(5, "moments")
    for machine in range(5):
        writes = int(draws.integers(10, 50))
        await lose(tmp_path / str(machine), settings, gate, writes)
    assert await finish(tmp_path / "last", settings) == []
    found = Cluster(tmp_path / "last", settings).digests()
    assert found == reference_digests(settings.config)


async def test_a_replay_service_that_loses_its_disk_has_its_rows_again(
    tmp_path: Path, gate: Gate
) -> None:
    """The controller has its directory; what replay lacks comes from the store."""
    settings = stored(tmp_path / "store")
    async with Cluster(tmp_path / "run", settings) as cluster:
        cluster.serve(2)
        await cluster.status_when(lambda status: status.iterations_committed > 9, what="ten")
    shutil.rmtree(tmp_path / "run" / "replay")
    assert await finish(tmp_path / "run", settings) == []
    found = Cluster(tmp_path / "run", settings).digests()
    assert found == reference_digests(settings.config)


async def test_a_replay_service_elsewhere_has_its_rows_again_under_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads its files: each machine has an empty disk, and rows travel both ways."""

    async def unreachable(_: ReplayClient) -> None:
        raise NotFound("its files are on another host")

    monkeypatch.setattr(ReplayClient, "map_table", unreachable)
    certificates, address = certify(tmp_path / "certificates"), free_address()
    settings = stored(
        tmp_path / "store", f"tls.certificates={certificates}", f"replay.address={address}"
    )
    for machine, iterations in enumerate((9, 25, 60)):
        async with Cluster(tmp_path / str(machine), settings) as cluster:
            stop = asyncio.Event()
            elsewhere = replace(cluster.launch, run_dir=tmp_path / f"replay {machine}")
            cluster.start(stop, serve_replay(elsewhere, stop))
            cluster.controller()
            cluster.learners(2)
            await cluster.status_when(
                lambda status, least=iterations: status.iterations_committed >= least,  # type: ignore[misc]
                what=f"{iterations} iterations",
            )
    assert lasting_caveats(cluster.run_dir) == []
    assert cluster.digests() == reference_digests(settings.config)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("lost", "is missing"),
        pytest.param("torn", "does not hold what was stored", marks=pytest.mark.thorough),
    ],
)
async def test_rows_that_the_store_has_lost_are_named_for_ever(
    tmp_path: Path, gate: Gate, harm: str, said: str
) -> None:
    store, settings = tmp_path / "store", stored(tmp_path / "store")
    await lose(tmp_path / "one", settings, gate, 60)
    for segment in (store / "rows").iterdir():
        if harm == "lost":
            segment.unlink()
        else:
            segment.write_bytes(segment.read_bytes()[:-4])
    await lose(tmp_path / "two", settings, gate, 40)
    caveats = await finish(tmp_path / "three", settings)
    assert len(caveats) == 1
    assert said in caveats[0]


@pytest.mark.parametrize("mode", [pytest.param("keyed", marks=pytest.mark.thorough), "free"])
async def test_what_collectors_played_outlives_all_machines(
    tmp_path: Path, gate: Gate, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Free rows are lost before the first checkpoint, too, and cannot be played again."""
    free = FREE if mode == "free" else ("collect.mode=keyed", "checkpoint.every=3")
    settings = collected(
        *ACTORS,
        *free,
        "iterations=32",
        "checkpoint.keep=20",
        f"store.url={tmp_path / 'store'}",
    )
    for machine, writes in enumerate((8, 15, 30)):
        await lose(tmp_path / str(machine), settings, gate, writes, collectors=2)
    last = tmp_path / "last"
    async with Cluster(last, settings) as cluster:
        services(cluster)
        await trained(cluster)
    assert lasting_caveats(last) == []
    if mode == "free":
        held(last)
        assert "32 committed iterations recomputed, 0 to 31: " in verified(last, capsys)
    else:
        assert cluster.digests() == reference_digests(settings.config)
