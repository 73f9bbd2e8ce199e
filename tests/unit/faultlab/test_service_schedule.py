"""Faults of real services are drawn from the seed alone, and every kind is drawn."""

from tests.faultlab.service_runs import Mode
from tests.faultlab.service_schedule import (
    CORRUPTED,
    DUPLICATED,
    ITERATIONS,
    LOST,
    LYING,
    NETWORK_FAULTS,
    OUTNUMBERED,
    RESUMED,
    SIGNALS,
    schedule_of,
)

SEEDS = range(200)


def test_a_schedule_is_its_seed_in_the_order_of_its_iterations() -> None:
    for seed in SEEDS:
        drawn = schedule_of(seed, mode=Mode.of(seed))
        assert drawn == schedule_of(seed, mode=Mode.of(seed))
        iterations = [fault.iteration for fault in drawn]
        assert iterations == sorted(iterations)
        assert 0 < min(iterations) <= max(iterations) < ITERATIONS - 1


def test_every_kind_strikes_every_service_that_can_suffer_it() -> None:
    drawn = {
        (fault.service, fault.kind)
        for seed in SEEDS
        for fault in schedule_of(seed, mode=Mode.of(seed))
    }
    asked = {(name, kind) for name in ("controller", "replay") for kind in NETWORK_FAULTS}
    services = ("controller", "replay", "learner", "collector")
    asked |= {(name, kind) for name in services for kind in SIGNALS}
    asked |= {("learner", kind) for kind in (CORRUPTED, OUTNUMBERED, LYING)}
    asked |= {("controller", kind) for kind in (DUPLICATED, RESUMED, LOST)}
    assert drawn == asked | {("replay", DUPLICATED)}
