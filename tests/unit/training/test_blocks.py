"""Blocks: any schedule of arrivals, deaths, failures and repeats gives the same ordered rows."""

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import EnvironmentFailed
from fullrank.training.blocks import BlockKey, BlockPlan, BlockScheduler, deadline_of


class Answered(NamedTuple):
    """Stands for the rows of a block."""

    content: str

    @property
    def digest(self) -> bytes:
        return self.content.encode()


def rows_of(key: BlockKey) -> Answered:
    return Answered(f"rows of {key}")


def assigned(
    scheduler: BlockScheduler[Answered], now: float, deadline_s: float = 10.0
) -> dict[int, BlockKey]:
    return dict(scheduler.assign(now, deadline_s=deadline_s))


PLAN = BlockPlan(copies=5, size=2)
SINGLES = BlockPlan(copies=2, size=1)


@pytest.fixture
def scheduler() -> BlockScheduler[Answered]:
    return BlockScheduler()


def test_the_last_block_is_smaller_if_blocks_do_not_divide_the_copies() -> None:
    assert [PLAN.copies_of(block) for block in range(PLAN.blocks)] == [
        range(2),
        range(2, 4),
        range(4, 5),
    ]


def test_blocks_are_assigned_in_the_order_of_keys(scheduler: BlockScheduler[Answered]) -> None:
    scheduler.open(PLAN.keys(7))
    scheduler.open(PLAN.keys(8))
    for collector in range(4):
        scheduler.attach(collector)
    assert assigned(scheduler, 0.0) == {
        0: BlockKey(7, 0),
        1: BlockKey(7, 1),
        2: BlockKey(7, 2),
        3: BlockKey(8, 0),
    }


def test_the_block_of_a_collector_that_is_gone_is_reassigned(
    scheduler: BlockScheduler[Answered],
) -> None:
    scheduler.open(PLAN.keys(0))
    scheduler.attach(0)
    assigned(scheduler, 0.0)
    scheduler.detach(0)
    scheduler.attach(1)
    assert assigned(scheduler, 1.0) == {1: BlockKey(0, 0)}


def test_an_overdue_block_is_reassigned_once_no_block_waits(
    scheduler: BlockScheduler[Answered],
) -> None:
    scheduler.open(PLAN.keys(0))
    for collector in range(3):
        scheduler.attach(collector)
    assigned(scheduler, 0.0)
    scheduler.answer(1, BlockKey(0, 1), rows_of(BlockKey(0, 1)))
    assert assigned(scheduler, 9.0) == {}
    assert assigned(scheduler, 10.0) == {1: BlockKey(0, 0)}
    assert scheduler.holders(BlockKey(0, 0)) == [0, 1]
    assert scheduler.begun_at() == 0.0


def test_the_first_answer_counts_and_one_that_differs_is_named(
    scheduler: BlockScheduler[Answered],
) -> None:
    scheduler.open(PLAN.keys(0))
    for collector in range(4):
        scheduler.attach(collector)
    held = assigned(scheduler, 0.0)
    assert assigned(scheduler, 20.0) == {3: BlockKey(0, 0)}
    for collector, key in held.items():
        assert scheduler.answer(collector, key, rows_of(key)) is None
    assert scheduler.take(PLAN.keys(0)) == [rows_of(BlockKey(0, block)) for block in range(3)]
    assert scheduler.answer(3, BlockKey(0, 0), Answered("other rows")) == 0
    assert not scheduler.waiting


def test_an_answer_that_differs_does_not_replace_the_first_one_before_it_is_taken() -> None:
    scheduler = BlockScheduler[Answered]()
    scheduler.open(SINGLES.keys(0))
    for collector in range(2):
        scheduler.attach(collector)
    assigned(scheduler, 0.0)
    scheduler.answer(0, BlockKey(0, 0), rows_of(BlockKey(0, 0)))
    assert assigned(scheduler, 20.0) == {0: BlockKey(0, 1)}
    scheduler.answer(1, BlockKey(0, 1), rows_of(BlockKey(0, 1)))
    scheduler.answer(0, BlockKey(0, 1), Answered("other rows"))
    assert scheduler.take(SINGLES.keys(0)) == [rows_of(BlockKey(0, block)) for block in range(2)]


def test_a_taken_block_that_is_opened_again_waits_for_another_answer(
    scheduler: BlockScheduler[Answered],
) -> None:
    scheduler.open(PLAN.keys(0))
    scheduler.attach(0)
    for key in PLAN.keys(0):
        assert assigned(scheduler, 0.0) == {0: key}
        scheduler.answer(0, key, rows_of(key))
    assert scheduler.take(PLAN.keys(0)) is not None
    lost = BlockKey(0, 1)
    scheduler.open([lost])
    assert scheduler.waiting == [lost]
    assert assigned(scheduler, 0.0) == {0: lost}
    assert scheduler.answer(0, lost, Answered("played again")) is None
    assert scheduler.take([lost]) == [Answered("played again")]


def test_an_answer_that_nobody_asked_for_is_ignored(scheduler: BlockScheduler[Answered]) -> None:
    scheduler.open(PLAN.keys(0))
    scheduler.attach(0)
    scheduler.answer(0, BlockKey(0, 0), rows_of(BlockKey(0, 0)))
    assert scheduler.waiting == [BlockKey(0, 0), BlockKey(0, 1), BlockKey(0, 2)]


def test_a_block_that_failed_goes_to_another_collector_and_three_failures_end_the_run(
    scheduler: BlockScheduler[Answered],
) -> None:
    scheduler.open(PLAN.keys(0))
    for collector in range(3):
        scheduler.attach(collector)
    held, failing = assigned(scheduler, 0.0), BlockKey(0, 0)
    scheduler.fail(0, failing, "copy 1 raised")
    assert assigned(scheduler, 0.0) == {}  # the two others will try it
    scheduler.answer(1, held[1], rows_of(held[1]))
    assert assigned(scheduler, 0.0) == {1: failing}
    scheduler.fail(1, failing, "copy 1 raised")
    scheduler.answer(2, held[2], rows_of(held[2]))
    assert assigned(scheduler, 0.0) == {2: failing}
    with pytest.raises(EnvironmentFailed, match="copy 1 raised; block 0 failed 3 times"):
        scheduler.fail(2, failing, "copy 1 raised")


def test_failures_end_no_run_while_a_collector_is_left_that_might_play_the_block(
    scheduler: BlockScheduler[Answered],
) -> None:
    scheduler.open(PLAN.keys(0))
    for collector in range(4):
        scheduler.attach(collector)
    held = assigned(scheduler, 0.0)
    failing = held[1]
    scheduler.fail(1, failing, "a lie")
    assert assigned(scheduler, 0.0) == {3: failing}
    scheduler.fail(3, failing, "a lie")
    scheduler.detach(3)  # it dials again
    scheduler.attach(3)
    for _ in range(4):
        assert assigned(scheduler, 0.0)[3] == failing
        scheduler.fail(3, failing, "a lie")
        scheduler.detach(3)
        scheduler.attach(3)
    scheduler.detach(3)
    scheduler.answer(0, held[0], rows_of(held[0]))
    assert assigned(scheduler, 0.0)[0] == failing
    scheduler.answer(0, failing, rows_of(failing))
    scheduler.answer(2, held[2], rows_of(held[2]))
    assert scheduler.take(PLAN.keys(0)) is not None


def test_a_lone_collector_tries_again(scheduler: BlockScheduler[Answered]) -> None:
    scheduler.open(PLAN.keys(0))
    scheduler.attach(0)
    assigned(scheduler, 0.0)
    scheduler.fail(0, BlockKey(0, 0), "raised")
    assert assigned(scheduler, 0.0) == {0: BlockKey(0, 0)}


def test_a_collector_that_hangs_does_not_keep_a_failed_block_waiting() -> None:
    scheduler: BlockScheduler[Answered] = BlockScheduler()
    scheduler.open(SINGLES.keys(0))
    scheduler.attach(0)
    scheduler.attach(1)
    assert assigned(scheduler, 0.0) == {0: BlockKey(0, 0), 1: BlockKey(0, 1)}
    scheduler.fail(1, BlockKey(0, 1), "raised")
    assert assigned(scheduler, 1.0) == {}
    assert assigned(scheduler, 11.0) == {1: BlockKey(0, 1)}


def test_the_deadline_follows_from_the_durations_of_recent_blocks() -> None:
    assert deadline_of([], first_s=60.0, factor=5.0, least_s=1.0) == 60.0
    assert deadline_of([0.1] * 9, first_s=60.0, factor=5.0, least_s=1.0) == 1.0
    assert deadline_of([2.0] * 99 + [50.0], first_s=60.0, factor=5.0, least_s=1.0) == 10.0


EVENTS = st.lists(
    st.tuples(st.sampled_from(["join", "die", "answer", "fail", "wait"]), st.integers(0, 3)),
    max_size=80,
)


@given(EVENTS, st.integers(1, 9), st.integers(1, 4), st.integers(1, 3))
def test_any_schedule_gives_every_block_once_in_the_order_of_keys(
    events: list[tuple[str, int]], copies: int, size: int, iterations: int
) -> None:
    plan = BlockPlan(copies, size)
    scheduler: BlockScheduler[Answered] = BlockScheduler()
    attached: dict[int, BlockKey | None] = {}
    now, failures = 0.0, Counter[BlockKey]()

    def assign() -> None:
        for collector, key in scheduler.assign(now, deadline_s=2.0):
            assert attached[collector] is None
            attached[collector] = key

    def apply(kind: str, collector: int) -> None:
        if kind == "join" and collector not in attached:
            scheduler.attach(collector)
            attached[collector] = None
        elif kind == "die" and collector in attached:
            scheduler.detach(collector)
            del attached[collector]
        key = attached.get(collector)
        if kind == "answer" and key is not None:
            attached[collector] = None
            assert scheduler.answer(collector, key, rows_of(key)) is None
        elif kind == "fail" and key is not None and failures[key] < 2:
            attached[collector] = None
            failures[key] += 1
            scheduler.fail(collector, key, "raised")

    for iteration in range(iterations):
        scheduler.open(plan.keys(iteration))
    for kind, collector in events:
        now += kind == "wait"
        apply(kind, collector)
        assign()
    collected: list[Answered] = []
    for iteration in range(iterations):
        for _ in range(200):
            if (answers := scheduler.take(plan.keys(iteration))) is not None:
                break
            now += 1.0
            for collector in range(4):
                apply("join", collector)
                apply("answer", collector)
            assign()
        assert answers is not None
        assert scheduler.take(plan.keys(iteration)) is None
        collected += answers
    assert collected == [
        rows_of(BlockKey(iteration, block))
        for iteration in range(iterations)
        for block in range(plan.blocks)
    ]
    assert not scheduler.waiting
