"""Machines that come and go, and the laws of restarts from checkpoints on them."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faultlab.capacity import Capacity, Change, Restarts, calm, daly_s, failing, recorded
from tests.faultlab.simulation.fleet import Work, play, undisturbed

TRACE = Path(__file__).resolve().parents[3] / "benchmarks/traces/bamboo_g4dn_us_east_1c.csv"


def one_loss(at_s: float, *, machines: int = 4, end_s: float = 100.0) -> Capacity:
    return Capacity(
        machines=machines, changes=(Change(at_s=at_s, machine=1, present=False),), end_s=end_s
    )


def test_the_recorded_trace_keeps_its_counts_whichever_machines_go() -> None:
    steps = [line.split(",") for line in TRACE.read_text().split()]
    full = [(float(at), int(count)) for at, count in steps[4:]]  # from twelve machines on
    capacity = recorded(TRACE)
    expected = sum((after - at) * count for (at, count), (after, _) in pairwise(full))
    assert capacity.machines == 12
    assert capacity.machine_s == pytest.approx(expected)
    assert recorded(TRACE, seed=1).machine_s == pytest.approx(expected)
    assert recorded(TRACE, seed=1).changes != capacity.changes
    assert sum(end - begin for begin, end, _ in capacity.counts()) == pytest.approx(capacity.end_s)


def test_a_machine_goes_only_if_it_is_there() -> None:
    for capacity in (
        recorded(TRACE),
        recorded(TRACE, machines=4),
        failing(6, gap=lambda draws: draws.exponential(5.0), away_s=9.0, end_s=500.0),
    ):
        present = set(range(capacity.machines))
        for change in capacity.changes:
            assert (change.machine in present) != change.present
            (present.add if change.present else present.discard)(change.machine)
            assert present
        assert list(capacity.changes) == sorted(capacity.changes, key=lambda each: each.at_s)


def test_without_a_loss_only_checkpoints_cost() -> None:
    """In 100 s fit nine spans of 10 s with a second each, and a last second."""
    restarts = Restarts(checkpoint_s=1.0, restart_s=20.0, every_s=10.0)
    assert restarts.work_s(calm(4, 100.0)) == pytest.approx(4 * (9 * 10.0 + 1.0))
    assert Restarts(checkpoint_s=0.0, restart_s=0.0, every_s=10.0).work_s(calm(4, 100.0)) == 400.0


def test_a_loss_costs_the_work_since_the_checkpoint_and_a_restart() -> None:
    """Checkpoints end after 11, 22, 33 and 44 s; 6 s of work are lost at 50 s."""
    restarts = Restarts(checkpoint_s=1.0, restart_s=20.0, every_s=10.0)
    kept, after = 4 * 40.0, 3 * (2 * 10.0 + 8.0)
    assert restarts.work_s(one_loss(50.0)) == pytest.approx(kept + after)


def test_a_machine_that_comes_costs_a_checkpoint_and_a_restart_but_no_work() -> None:
    changes = (
        Change(at_s=0.0, machine=1, present=False),
        Change(at_s=50.0, machine=1, present=True),
    )
    capacity = Capacity(machines=2, changes=changes, end_s=100.0)
    restarts = Restarts(checkpoint_s=1.0, restart_s=4.0, every_s=1000.0)
    assert restarts.work_s(capacity) == pytest.approx(1 * (50.0 - 4.0) + 2 * (50.0 - 5.0))


@given(
    st.floats(0.0, 5.0),
    st.floats(0.0, 60.0),
    st.floats(1.0, 300.0),
    st.integers(0, 99),
)
def test_work_is_never_more_than_the_machines_could_do_and_slower_restarts_do_no_more(
    checkpoint_s: float, restart_s: float, every_s: float, seed: int
) -> None:
    capacity = recorded(TRACE, seed=seed)
    works = [
        Restarts(checkpoint_s=checkpoint_s, restart_s=each, every_s=every_s).work_s(capacity)
        for each in (restart_s, restart_s + 30.0)
    ]
    assert 0.0 <= works[1] <= works[0] <= capacity.machine_s * (1 + 1e-9)


def test_dalys_interval_is_youngs_where_checkpoints_are_quick_and_near_the_best_tried() -> None:
    assert daly_s(1e-6, 3600.0) == pytest.approx(math.sqrt(2 * 1e-6 * 3600.0), rel=1e-3)
    assert daly_s(10.0, 3.0) == 3.0
    capacity = failing(8, gap=lambda draws: draws.exponential(300.0), away_s=1e9, end_s=1e5)
    capacity = Capacity(  # losses without fewer machines, as the formula has it
        machines=8,
        changes=tuple(
            Change(at_s=at_s, machine=0, present=present)
            for change in capacity.changes[:7]
            for at_s, present in ((change.at_s, False), (change.at_s + 1e-6, True))
        ),
        end_s=2500.0,
    )
    between_s = capacity.end_s / capacity.losses

    def work_s(every_s: float) -> float:
        return Restarts(checkpoint_s=5.0, restart_s=0.0, every_s=every_s).work_s(capacity)

    best = max(work_s(between_s * share) for share in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6))
    assert work_s(daly_s(5.0, between_s)) > 0.95 * best


@pytest.mark.parametrize("settings", [None, ("code.name=cyclic", "code.tolerance=1")])
def test_a_run_whose_machines_go_without_a_word_has_the_bits_of_the_undisturbed_one(
    settings: tuple[str, ...] | None,
) -> None:
    """And more of them than restarts, for no time of restart."""
    work = Work(units=12, unit_s=1.0, start_s=5.0)
    capacity = failing(4, gap=lambda draws: 40.0, away_s=25.0, end_s=160.0)
    assert capacity.losses == 3
    played = play(capacity, work) if settings is None else play(capacity, work, settings=settings)
    digests = undisturbed(work, 4, 60)
    assert len(set(digests)) == 60
    assert played.digests == digests[: len(played.digests)]
    assert played.committed_s == sorted(played.committed_s)
    calm_run = play(calm(4, 160.0), work)
    assert 20 < len(played.digests) <= len(calm_run.digests)
    assert calm_run.digests == digests[: len(calm_run.digests)]
