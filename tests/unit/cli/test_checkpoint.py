"""``fullrank checkpoint``: checkpoints are listed, verified and compared."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.runs.test_recovery import STATE, committed, flip

from fullrank.cli import checkpoint as verb
from fullrank.common.types import JSON
from fullrank.runs import checkpoint
from fullrank.runs.checkpoint import save
from fullrank.runs.ending import Ending, write_ending
from fullrank.runs.record import METRICS


def run_of(tmp_path: Path, *, iterations: int) -> Path:
    (tmp_path / "run").mkdir(parents=True)
    committed(tmp_path / "run", iterations)
    return tmp_path / "run"


def test_ls_lists_checkpoints_and_journal(tmp_path: Path, fullrank: Any) -> None:
    run = run_of(tmp_path, iterations=10)
    flip(run / "checkpoints" / "000003" / checkpoint.MANIFEST)
    found = json.loads(fullrank("checkpoint", "ls", str(run), "--json").output)
    assert [each["iteration"] for each in found["checkpoints"]] == [7, 3]
    assert found["checkpoints"][0]["term"] == 1
    assert [bool(each["fault"]) for each in found["checkpoints"]] == [False, True]
    assert [(each["first"], each["records"]) for each in found["journal"]] == [(4, 4), (8, 2)]
    assert "iterations 8 to 9 of term 1" in fullrank("checkpoint", "ls", str(run)).output


def test_ls_leaves_out_a_checkpoint_that_a_run_prunes_meanwhile(
    tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, iterations=10)
    oldest = run / "checkpoints" / "000003"

    def pruned(path: Path) -> JSON:
        if oldest.exists():
            checkpoint.remove(oldest)
        return checkpoint.read_manifest(path)

    monkeypatch.setattr(verb, "read_manifest", pruned)
    found = json.loads(fullrank("checkpoint", "ls", str(run), "--json").output)
    assert [each["iteration"] for each in found["checkpoints"]] == [7]


def test_verify_ends_with_8_if_something_is_damaged(tmp_path: Path, fullrank: Any) -> None:
    run = run_of(tmp_path, iterations=10)
    assert fullrank("checkpoint", "verify", str(run)).code == 0
    assert "from 10 committed iterations" in fullrank("checkpoint", "verify", str(run)).output
    flip(run / "checkpoints" / "000007" / checkpoint.STATE)
    outcome = fullrank("checkpoint", "verify", str(run), "--json")
    assert outcome.code == 8
    assert json.loads(outcome.output)["committed"] == 10
    assert outcome.error.count("\n") == 1


def test_verify_ends_with_8_if_a_run_that_has_ended_has_lost_everything(
    tmp_path: Path, fullrank: Any
) -> None:
    run = run_of(tmp_path, iterations=10)
    for name in ("checkpoints", "journal"):
        shutil.rmtree(run / name)
    (run / METRICS).unlink(missing_ok=True)
    ending = Ending(state="finished", reason="", exit_code=0, committed=10, settings="")
    write_ending(run, ending)
    outcome = fullrank("checkpoint", "verify", str(run))
    assert (outcome.code, "no checkpoint can be used" in outcome.error) == (8, True)


def test_verify_refuses_a_directory_that_is_no_run(tmp_path: Path, fullrank: Any) -> None:
    outcome = fullrank("checkpoint", "verify", str(tmp_path))
    assert (outcome.code, "is no run" in outcome.error) == (1, True)


def test_sides_are_paths_as_they_are_given(
    tmp_path: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of this name below runs/ is another one."""
    monkeypatch.chdir(tmp_path)
    here, named = run_of(tmp_path, iterations=10), run_of(tmp_path / "runs", iterations=10)
    assert here.name == named.name
    changed = {**STATE, "algorithm.policy": np.ones(4, np.float32)}
    save(named / "checkpoints", iteration=7, arrays=changed, facts={}, keep=2)
    assert fullrank("checkpoint", "diff", f"./{here.name}", f"runs/{named.name}").code == 1


def test_diff_ends_with_1_if_a_bit_differs(tmp_path: Path, fullrank: Any) -> None:
    run = run_of(tmp_path, iterations=10)
    older = run / "checkpoints" / "000003"
    assert fullrank("checkpoint", "diff", str(run), str(older)).code == 0
    changed = {**STATE, "algorithm.policy": np.ones(4, np.float32)}
    save(run / "checkpoints", iteration=7, arrays=changed, facts={}, keep=2)
    outcome = fullrank("checkpoint", "diff", str(run), str(older), "--json")
    assert outcome.code == 1
    assert [each["name"] for each in json.loads(outcome.output)] == ["algorithm.policy"]
