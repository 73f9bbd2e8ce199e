"""``fullrank train --local``: one process, the bytes of the services, and moves between both."""

import signal
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.commands import (
    digests,
    final_state,
    fullrank,
    processes_of,
    records,
    settings,
    tracebacks,
)
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import wait_until

from fullrank.common.errors import ServiceLost
from fullrank.common.failpoints import VARIABLE
from fullrank.runs.journal import read as read_journal
from fullrank.runs.record import IterationRecord

pytestmark = pytest.mark.e2e

ITERATIONS = 11
RUN = settings(
    f"iterations={ITERATIONS}",
    "collect.steps=9",  # episodes of 25 steps cross iterations
    "checkpoint.every=4",
    "checkpoint.keep=9",
)
ELSEWHERE = {
    *("term", "round_s", "collect_s", "play_s", "update_s", "iteration_s", "agent_updates_per_s"),
    "env_steps_per_s",
    *("compute_s", "assigned_s", "started_s", "sent_s"),
    *("arrival_s", "decodable_s", "decode_s", "audited", "rows", "received", "late", "condition"),
    *("epoch", "code_rows", "rows_per_learner", "tolerance"),  # a resumed run begins with a few
    *("bytes_sent", "bytes_received"),
}
"""Fields of a record that name terms, learners, times and rows, and so depend on the driver."""


def facts(record: IterationRecord) -> dict[str, object]:
    """The fields of a record that no driver may change."""
    names = set(IterationRecord.__dataclass_fields__) - ELSEWHERE
    return {name: getattr(record, name) for name in names}


def assert_same_run(run_dir: Path, reference: Path) -> None:
    """Compare parameters, journal, metrics and history with those of the uninterrupted run."""
    assert final_state(run_dir) == final_state(reference)
    assert list(map(facts, records(run_dir))) == list(map(facts, records(reference)))
    entries, expected = (read_journal(path / "journal", first=0) for path in (run_dir, reference))
    assert len(entries) == len(expected) == ITERATIONS
    for entry, other in zip(entries, expected, strict=True):
        assert entry.updates is not None
        assert other.updates is not None
        assert np.array_equal(entry.updates.view(np.uint32), other.updates.view(np.uint32))
        for name in ("sample", "priority", "digests"):
            assert entry.facts[name] == other.facts[name]
    assert violations(read_history(run_dir), reference=digests(reference)) == []
    assert tracebacks(run_dir) == []


def test_a_run_that_is_killed_and_moved_twice_ends_in_the_same_bytes(
    run_dir: Path, tmp_path: Path
) -> None:
    """From one process to services, and back; the undisturbed run is of one process."""
    outcome = fullrank(
        "train", "--local", "--run-dir", str(run_dir), *RUN, env={VARIABLE: "journal.synced:3"}
    )
    assert outcome.code == -signal.SIGKILL, outcome.error
    wait_until(lambda: not processes_of(run_dir), what="no process is left")
    outcome = fullrank(
        "run", "resume", "--attach", str(run_dir), env={VARIABLE: "journal.synced:4"}
    )
    assert outcome.code == ServiceLost.exit_code, outcome.error
    wait_until(lambda: not processes_of(run_dir), what="no process is left")
    outcome = fullrank("run", "resume", "--attach", "--local", str(run_dir))
    assert (outcome.code, outcome.error) == (0, "")
    assert [record.term for record in records(run_dir)] == [1] * 3 + [2] * 4 + [3] * 4
    undisturbed = tmp_path / "undisturbed"
    outcome = fullrank("train", "--local", "--run-dir", str(undisturbed), *RUN)
    assert (outcome.code, outcome.error) == (0, "")
    assert_same_run(run_dir, undisturbed)
