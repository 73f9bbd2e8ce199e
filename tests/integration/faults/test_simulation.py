"""Under seeded misfortunes in virtual time runs keep every promise; broken ones are found out."""

from collections.abc import Sequence
from functools import cache

import pytest

from fullrank.local import LocalRun
from fullrank.rounds.decision import Decoded
from fullrank.runs.journal import Entry, Journal
from fullrank_controller.driver import Driver
from fullrank_controller.membership.membership import Membership
from fullrank_faultlab.rehearsal import Outcome, configuration, lag_of, rehearse

pytestmark = pytest.mark.integration


@cache
def reference(lag: int) -> tuple[tuple[str, ...], str]:
    """What the run without learners commits, and the parameters that it ends with."""
    run = LocalRun(configuration(lag=lag), coded=False)
    return tuple(iteration.update_digest for iteration in run.train()), run.parameter_digest()


def played(seed: int) -> Outcome:
    digests, parameters = reference(lag_of(seed))
    return rehearse(seed, digests=digests, parameters=parameters)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_runs_keep_every_promise_whatever_befalls_them(seed: int) -> None:
    for outcome in map(played, range(seed, seed + 4)):
        assert not outcome.wrong, outcome


def test_a_schedule_is_its_seed() -> None:
    first, again = played(7), played(7)
    assert first.injected == again.injected
    assert len(first.injected) > 1


def found_out(seeds: range) -> set[str]:
    """The names of the invariants that break within some schedules."""
    return {line.partition(":")[0] for seed in seeds for line in played(seed).wrong}


def test_a_journal_that_forgets_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "append", lambda self, *args, **keywords: None)
    assert "nothing is forgotten" in found_out(range(12))


def test_a_controller_that_forgets_where_replay_stood_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restore = Driver._restore

    async def elsewhere(self: Driver, head: int, journalled: Sequence[Entry]) -> None:
        await restore(self, head + 1, journalled)

    monkeypatch.setattr(Driver, "_restore", elsewhere)
    assert "exact" in found_out(range(12))


def test_samples_of_learners_own_that_pass_for_exact_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Decoded, "exact", True)
    assert found_out(range(12)) == {"exact"}


def test_a_controller_that_waits_for_the_dead_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "hand_out", lambda self, current, units: {})
    assert "live" in found_out(range(12))
