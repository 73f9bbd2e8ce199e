"""``fullrank verify`` names files that are damaged, by the first iteration that needs them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.cli.verified import entries_of, flip, flip_row, sample_of

from fullrank.runs import checkpoint


def test_a_flipped_bit_in_a_row_is_named_with_the_first_iteration_that_draws_it(
    run: Path, fullrank: Any
) -> None:
    drawn = [set(sample_of(entry).positions().tolist()) for entry in entries_of(run)]
    position = max(drawn[4] - set[int]().union(*drawn[:4]))
    flip_row(run, position)
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert "iteration 4 differs: its minibatch: " in outcome.error
    assert f"the row at position {position} is not what was stored" in outcome.error
    assert outcome.error.count("\n") == 1


def test_a_flipped_bit_in_a_row_that_no_iteration_draws_is_named(run: Path, fullrank: Any) -> None:
    entries = entries_of(run)
    drawn = set[int]().union(*(sample_of(entry).positions().tolist() for entry in entries))
    position = max(set(range(sample_of(entries[-1]).head)) - drawn)
    flip_row(run, position)
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert f"every recomputed iteration is equal, but {run}" in outcome.error
    assert f"the row at position {position} is not what was stored" in outcome.error


def test_a_flipped_bit_that_hides_a_whole_episode_is_named(
    trained: Callable[[str], Path], tmp_path: Path, fullrank: Any
) -> None:
    run = Path(shutil.copytree(trained("qmix"), tmp_path / "run"))
    flip_row(run, 5, column=-1)  # the length of the row before it
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert "the row at position 4 is not what was stored" in outcome.error


@pytest.mark.parametrize("place", [5, 40, -1], ids=["header", "facts", "update"])
def test_a_flipped_bit_in_the_journal_is_named(place: int, run: Path, fullrank: Any) -> None:
    [segment] = (run / "journal").glob("000003-*")
    flip(segment, place)
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    lost = 5 if place < 0 else 3
    assert f"iteration {lost} differs: its journal entry is not in {segment}" in outcome.error


def test_a_flipped_bit_in_the_last_record_is_no_crash(run: Path, fullrank: Any) -> None:
    [segment] = (run / "journal").glob("000006-*")
    (run / "journal" / "000008-000001.journal").unlink(missing_ok=True)
    flip(segment, 6)  # its length: as if it were cut short
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert f"iteration 6 differs: its journal entry is not in {segment}" in outcome.error


def test_a_checkpoint_that_is_damaged_or_holds_other_parameters_is_named(
    run: Path, fullrank: Any
) -> None:
    saved = run / "checkpoints" / "000005"
    whole = checkpoint.load(saved)
    flip(saved / checkpoint.STATE, -1)
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert f"iteration 5 differs: the checkpoint after it: {saved}" in outcome.error
    name = "algorithm.policy/1"
    arrays = {**whole.arrays, name: whole.arrays[name] + np.float32(1.0)}
    checkpoint.save(saved.parent, iteration=5, arrays=arrays, facts=whole.facts, keep=9)
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert (
        "iteration 5 differs: the parameters in the checkpoint after it, 1 arrays, first policy/1"
        in outcome.error
    )
