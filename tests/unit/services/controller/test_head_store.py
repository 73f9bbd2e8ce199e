"""Heads of containers in the controller: the newest counts, and survives the controller."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
from tests.unit.services.controller.free_blocks import (
    AGENTS,
    TERM,
    joined,
    make_pool,
    played,
    settle,
    terms,
)
from tests.waiting import eventually

from fullrank.common.errors import InvalidContribution, StaleTerm
from fullrank.net.messages import head_message
from fullrank.training.blocks import BlockKey, FreePlan
from fullrank.training.heads import ContainerHead
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.blocks_in import BlockReport, block_report
from fullrank_controller.collectors.free_pool import FreePool
from fullrank_controller.collectors.head_store import HeadStore
from fullrank_controller.membership.member import Member

SIZE = 6
METRICS = Path(__file__).parents[4] / "deploy" / "metrics"
DASHBOARD = METRICS / "grafana" / "dashboards" / "fullrank.json"


def store_in(folder: Path) -> HeadStore:
    return HeadStore(folder, size=SIZE, confirm=lambda: None)


def message(container: int, updates: int, values: object = 1.0) -> pb.ContainerHead:
    head = np.broadcast_to(np.asarray(values, np.float32), SIZE)
    return head_message(container, ContainerHead(updates, head))


def updates(store: HeadStore) -> dict[int, int]:
    return {each.container: each.updates for each in store.messages}


async def test_the_next_controller_has_the_newest_heads(tmp_path: Path) -> None:
    store = store_in(tmp_path / "heads")
    assert not store.take(0, message(0, 5))
    assert not store.take(1, message(1, 3, 2.0))
    assert not store.take(0, message(0, 9, 7.0))
    assert not store.take(0, message(0, 8))
    assert updates(store) == {0: 9, 1: 3}
    await eventually(
        lambda: updates(store_in(tmp_path / "heads")) == {0: 9, 1: 3}, what="both on disk"
    )
    assert store_in(tmp_path / "heads").messages == store.messages


async def test_a_head_that_is_not_finite_or_of_another_size_is_refused_by_name(
    tmp_path: Path,
) -> None:
    store = store_in(tmp_path)
    assert store.take(1, message(1, 4, np.inf)) == "its head of 4 updates is not finite"
    short = head_message(1, ContainerHead(4, np.ones(SIZE - 1, np.float32)))
    for wrong, said in (
        (short, "the head of container 1: chunk.total is 20, expected 24"),
        (pb.ContainerHead(container=1), "the head of container 1 is not complete"),
        (message(0, 4), "head.container is 0, expected 1"),
        (message(1, 2**63), "head.updates is 9223372036854775808"),
    ):
        with pytest.raises(InvalidContribution, match=said):
            store.take(1, wrong)
    assert store.messages == []


@pytest.mark.parametrize(
    ("length", "updates", "said"),
    [
        (2**64 - 1, 0, "played.lengths, exceed"),
        (2**62, 0, "played.lengths, exceed"),
        (3, 2**63, "played.container.updates is 9223372036854775808"),
    ],
)
def test_numbers_of_a_container_that_no_run_reaches_are_refused_also_of_kept_episodes(
    length: int, updates: int, said: str
) -> None:
    container = pb.ContainerReport(handed_over=[0], updates=updates)
    report = played(BlockKey(TERM, 0), 3, 3, rows=3, container=container).played
    report.lengths[1] = length
    with pytest.raises(InvalidContribution, match=said):
        block_report(report, FreePlan(2**48, 2), agents=AGENTS, ends=0, row_size=4, shares=True)


async def test_a_damaged_file_costs_its_head_alone(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.take(0, message(0, 5))
    store.take(1, message(1, 6))
    await eventually(lambda: len(updates(store_in(tmp_path))) == 2, what="both on disk")
    (tmp_path / "0.npz").write_bytes(b"no archive")
    np.savez(tmp_path / "2.npz", updates=1, values=np.ones(SIZE + 1, np.float32))
    assert updates(store_in(tmp_path)) == {1: 6}


ONES = np.ones(SIZE, np.float32)
DAMAGED = {
    "no bytes": lambda file: None,
    "an array": lambda file: np.save(file, ONES),
    "several updates": lambda file: np.savez(file, updates=[1, 2], values=ONES),
    "negative updates": lambda file: np.savez(file, updates=-3, values=ONES),
    "endless updates": lambda file: np.savez(file, updates=np.inf, values=ONES),
    "values that are no numbers": lambda file: np.savez(file, updates=3, values=["a"] * SIZE),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_whatever_is_damaged_in_a_file_costs_its_head_alone(what: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "1.npz", updates=6, values=ONES)
    np.savez(tmp_path / f"{2**32}.npz", updates=6, values=ONES)
    with (tmp_path / "0.npz").open("wb") as file:
        DAMAGED[what](file)
    assert updates(store_in(tmp_path)) == {1: 6}


async def test_a_superseded_controller_writes_no_head(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def confirm() -> None:
        raise StaleTerm("a later controller has it")

    store = HeadStore(tmp_path, size=SIZE, confirm=confirm)
    store.take(0, message(0, 5))
    await eventually(lambda: "a later controller has it" in caplog.text, what="the reason")
    assert store_in(tmp_path).messages == []


async def playing(tmp_path: Path) -> tuple[FreePool, Member]:
    """A pool with one container that plays the first block."""
    pool = make_pool(store_in(tmp_path), block=3)
    member = joined(pool)
    pool.publish(terms(0), oldest=0)
    play(pool, 0)
    await settle()
    return pool, member


PLAYING = set[asyncio.Task[BlockReport]]()


def play(pool: FreePool, block: int) -> None:
    """Open a block."""
    PLAYING.add(asyncio.create_task(pool.play(BlockKey(TERM, block))))


def shared(*handed_over: int, block: int = 0, **facts: float) -> pb.CollectorMessage:
    """Report a block of three episodes of two steps, of which these are handed over."""
    report = pb.ContainerReport(handed_over=handed_over, **facts)  # type: ignore[arg-type]
    rows = 2 * len(handed_over)
    return played(BlockKey(TERM, block), 2, 2, 2, rows=rows, container=report)


async def test_the_status_and_the_metrics_show_what_a_container_does(tmp_path: Path) -> None:
    pool, member = await playing(tmp_path)
    pool.take(member, shared(0, 2, updates=7, divergence=0.25))
    play(pool, 1)
    await settle()
    pool.take(member, shared(1, block=1, updates=9, divergence=0.5))
    pool.take(member, pb.CollectorMessage(head=message(0, 8)))
    pool.publish(terms(4), oldest=0)
    (status,) = pool.statuses(version=4, now=0.0)
    assert status.lag == 4  # its trunk is that of version 0
    assert status.container == pb.ContainerStatus(
        played=6, handed_over=3, updates=9, published=8, divergence=0.5
    )
    shown = {family.name: family for family in pool.metrics(version=0)}
    assert {name for name in shown if "container" in name} == {
        "container_handed_over",
        "container_heads",
        "container_updates",
        "container_published",
        "container_divergence",
    }
    panels = set(re.findall(r"fullrank_(container_\w+)", DASHBOARD.read_text()))
    assert panels == {"container_updates", "container_published", "container_divergence"}


async def test_a_container_that_has_reported_nothing_shows_the_head_that_is_kept(
    tmp_path: Path,
) -> None:
    pool, _ = await playing(tmp_path)
    assert pool.heads is not None
    pool.heads.take(1, message(1, 8))
    joining = pool.roster.join("host", now=0.0)
    pool.admit(joining)
    kept = pb.ContainerStatus(updates=8, published=8)
    assert [each.container for each in pool.statuses(version=0, now=0.0)][1] == kept
    play(pool, 1)
    await settle()
    pool.take(joining, shared(block=1, updates=6))  # older than the head
    shown = {
        family.name: family.values["1"]
        for family in pool.metrics(version=0)
        if family.label == "container"
    }
    assert (shown["container_updates"], shown["container_published"]) == (8.0, 8.0)


async def test_heads_go_with_the_next_publication_and_to_a_container_that_joins(
    tmp_path: Path,
) -> None:
    pool, member = await playing(tmp_path)
    pool.take(member, pb.CollectorMessage(head=message(0, 8)))
    play(pool, 1)
    joining = joined(pool)
    await settle()
    written = list[bytes]()

    async def write(encoded: bytes) -> None:
        written.append(encoded)
        raise StaleTerm("enough")

    with pytest.raises(StaleTerm):
        await joining.outbox.drain(write)
    order = pb.CollectorOrder.FromString(written[0])
    assert [each.updates for each in order.publication.heads] == [8]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (shared(1, 3), r"hands over episodes \[1, 3\] of 3"),
        (shared(1, 1), r"hands over episodes \[1, 1\] of 3"),
        (shared(1, divergence=np.nan), "divergence is nan"),
        (shared(1, version=9), "version is 9, not sent yet"),
    ],
)
async def test_an_impossible_report_is_refused_whole(
    wrong: pb.CollectorMessage, said: str, tmp_path: Path
) -> None:
    pool, member = await playing(tmp_path)
    with pytest.raises(InvalidContribution, match=said):
        pool.take(member, wrong)
    assert not pool.totals.handed_over
    assert len(pool.waiting) == 1


async def test_a_refused_head_is_named_and_the_container_goes_on(tmp_path: Path) -> None:
    pool, member = await playing(tmp_path)
    pool.take(member, pb.CollectorMessage(head=message(0, 8, np.nan)))
    assert "not finite" in pool.eligible[member].failed
    pool.take(member, shared(1))
