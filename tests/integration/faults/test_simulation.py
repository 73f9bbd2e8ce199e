"""Simulated runs keep all guarantees under injected faults; deliberate bugs are found."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import pytest
from tests.faultlab.outcome import FaultOutcome
from tests.faultlab.simulation import (
    collectors_of,
    configuration,
    lag_of,
    simulate,
    sums_of,
)
from tests.faultlab.simulation.collector import CollectorBehaviour

from fullrank.local import LocalRun
from fullrank.replay import staging
from fullrank.rounds.decision import Decoded
from fullrank.run.round import OpenRound
from fullrank.runs.journal import Journal
from fullrank.training.block_collection import KeyedCollection
from fullrank_controller.collectors import blocks_in
from fullrank_controller.driver import Driver
from fullrank_controller.persistence.restore import StoredIteration
from fullrank_controller.persistence.run_numerics import RunNumerics

pytestmark = pytest.mark.integration


@cache
def reference(lag: int, sums: bool, keyed: bool) -> tuple[tuple[str, ...], str]:
    """Update digests and final parameters of the fault-free run."""
    run = LocalRun(configuration(lag=lag, sums=sums, keyed=keyed), coded=False)
    return tuple(iteration.update_digest for iteration in run.train()), run.parameter_digest()


def simulated(seed: int) -> FaultOutcome:
    digests, parameters = reference(lag_of(seed), sums_of(seed), collectors_of(seed) > 0)
    return simulate(seed, digests=digests, parameters=parameters)


unbroken = cache(simulated)
"""The outcome of a controller without a deliberate bug."""


@pytest.mark.parametrize("seed", range(0, 24, 4))
def test_runs_keep_every_promise_under_all_faults(seed: int) -> None:
    for outcome in map(unbroken, range(seed, seed + 4)):
        assert not outcome.violations, outcome


@pytest.mark.parametrize("seed", [59, 515])
def test_collectors_play_again_what_was_journalled_last_before_the_controller_died(
    seed: int,
) -> None:
    """Nothing is left to compute, but the episodes of iterations that are repeated are."""
    assert not simulated(seed).violations


@pytest.mark.parametrize("seed", [149, 222])
def test_iterations_are_known_though_a_controller_died_while_it_repeated_them(seed: int) -> None:
    assert not simulated(seed).violations


def test_a_schedule_is_its_seed() -> None:
    first, again = unbroken(7), simulated(7)
    assert first.faults == again.faults
    assert len(first.faults) > 1


def violated_by(seeds: Iterable[int]) -> Iterator[str]:
    """Names of the invariants that simulated runs break, run by run."""
    return (line.partition(":")[0] for seed in seeds for line in simulated(seed).violations)


def test_a_journal_that_forgets_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "append", lambda self, *args, **keywords: None)
    assert "nothing is forgotten" in violated_by(range(12))


def test_a_controller_that_forgets_where_replay_stood_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drive = Driver.drive

    async def drive_ahead(
        self: Driver, *, head: int, journalled: Sequence[StoredIteration] = ()
    ) -> None:
        await drive(self, head=head + 1, journalled=journalled)

    monkeypatch.setattr(Driver, "drive", drive_ahead)
    assert "exact" in violated_by(range(12))


def test_samples_of_learners_own_that_pass_for_exact_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Decoded, "exact", True)
    assert set(violated_by(range(6, 9))) == {"exact"}


def test_a_controller_that_believes_most_learners_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One more stream than there are learners claims another numeric fingerprint."""
    attacked = next(seed for seed in range(100) if "sybils" in "".join(unbroken(seed).faults))
    monkeypatch.setattr(RunNumerics, "fix", lambda self, numerics: None)
    assert any(line.startswith("exact") for line in simulated(attacked).violations)


COLLECTED = [seed for seed in range(60) if collectors_of(seed)][:16]
"""Seeds whose episodes are played by collectors."""


def test_collectors_misbehave_in_every_way() -> None:
    faults = "\n".join(line for seed in COLLECTED for line in unbroken(seed).faults)
    kinds = {behaviour.name.lower() for behaviour in CollectorBehaviour} - {"play"}
    assert {kind for kind in kinds if re.search(rf"collector \d: {kind}", faults)} == kinds
    assert re.search(r"collector \d disconnected", faults)
    assert re.search(r"collector \d partitioned", faults)


def test_a_controller_that_plays_with_stale_parameters_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version_of = KeyedCollection.version_of
    for seed in COLLECTED:
        unbroken(seed)  # with the reference, which is kept
    monkeypatch.setattr(
        KeyedCollection,
        "version_of",
        lambda self, iteration: max(0, version_of(self, iteration) - 1),
    )
    assert "fresh" in violated_by(COLLECTED[:4])


def test_a_replay_that_takes_damaged_blocks_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging, "block_digest", lambda rows, lengths: b"any")
    monkeypatch.setattr(blocks_in, "block_digest", lambda rows, lengths: b"any")
    assert "exact" in violated_by(COLLECTED[7:])


def test_a_controller_that_waits_for_the_dead_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenRound, "_add", lambda self, units: False)
    assert "live" in violated_by(range(12))
