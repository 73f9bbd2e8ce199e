"""``fullrank checkpoint export`` and ``import``: a whole run moves while it goes on."""

import json
import shutil
from pathlib import Path

import pytest
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    digests,
    end,
    fullrank,
    interrupt,
    kill_all,
    settings,
    shorten,
    start,
    tracebacks,
)
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import wait_until

from fullrank.runs.record import published

pytestmark = pytest.mark.e2e

RUN = settings(
    ENDLESS,  # it goes on while it is exported, however long that takes
    "collect.steps=9",  # episodes of 25 steps cross iterations
    "checkpoint.every=4",
    "checkpoint.keep=2",
    "replay.capacity=160",  # the oldest rows are evicted
    "compute.emulate_unit_s=0.05",
)


@pytest.mark.thorough
def test_a_run_exported_while_it_goes_on_ends_with_the_same_bytes(
    run_dir: Path, tmp_path: Path
) -> None:
    archive, moved, copied = tmp_path / "archive", tmp_path / "moved", tmp_path / "copied"
    process = start("train", "--run-dir", str(run_dir), *RUN)
    try:
        wait_until(lambda: committed(run_dir) > 5, what="more than a checkpoint is committed")
        outcome = fullrank("checkpoint", "export", str(run_dir), str(archive))
        assert (outcome.code, outcome.error) == (0, "")
        interrupt(process)
        assert end(process).code == 130
        assert tracebacks(run_dir) == []
    finally:
        kill_all(run_dir)
    original = json.loads((run_dir / "run.json").read_text())
    shutil.rmtree(run_dir)  # the machine is lost

    outcome = fullrank("checkpoint", "import", str(archive), str(moved), "--same-run")
    assert (outcome.code, outcome.error) == (0, "")
    outcome = fullrank("checkpoint", "import", str(archive), str(copied))
    assert (outcome.code, outcome.error) == (0, "")
    last = published(moved) + 3
    expected = centralised(moved, iterations=last)
    for path in (moved, copied):
        shorten(path, iterations=last)
        outcome = fullrank("run", "resume", "--attach", "--local", str(path))
        assert (outcome.code, outcome.error) == (0, "")
        assert digests(path) == expected
        assert violations(read_history(path), reference=expected) == []
        assert tracebacks(path) == []
    identities = [json.loads((path / "run.json").read_text()) for path in (moved, copied)]
    assert [each["run"] == original["run"] for each in identities] == [True, False]
    assert all(each["term"] > original["term"] for each in identities)
