"""``fullrank verify`` names files that are damaged, iterations that differ, and their learners."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.cli.verified import (
    MADDPG,
    altered,
    entries_of,
    flip,
    flip_row,
    rewrite,
    sample_of,
    train,
)

from fullrank.algorithms.optimiser import GroupedOptimiser
from fullrank.common.errors import Unsound
from fullrank.runs import checkpoint
from fullrank.runs.ending import keep_caveat
from fullrank.training.trainer import Trainer


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


def test_an_altered_update_or_digest_is_named_by_unit(run: Path, fullrank: Any) -> None:
    entries = entries_of(run)
    digests = list(entries[4].facts["digests"])
    digests[1] = "00" * 16
    facts = {"digests": digests, "reports": {"2": [0, 1], "3": [2]}}
    rewrite(run, [*entries[:4], altered(entries[4], facts=facts), *entries[5:]])
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert (
        "iteration 4 differs: the updates of units [1], which learners [2] had reported; this "
        "machine has the run's numeric fingerprint, so that these updates are wrong\n"
        in outcome.error
    )
    assert entries[5].updates is not None
    updates = np.nextafter(entries[5].updates, np.float32(1.0))
    rewrite(run, [*entries[:5], altered(entries[5], updates=updates), *entries[6:]])
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert "iteration 5 differs: the update in its journal entry\n" in outcome.error


def test_an_altered_sample_or_digest_of_the_update_is_named(run: Path, fullrank: Any) -> None:
    entries = entries_of(run)
    _, *drawn = entries[2].facts["sample"]
    rewrite(run, [*entries[:2], altered(entries[2], facts={"sample": [9, *drawn]}), *entries[3:]])
    assert "iteration 2 differs: its sample" in fullrank("verify", str(run)).error
    record = {**entries[3].facts["record"], "update_digest": "00" * 16}
    rewrite(run, [*entries[:3], altered(entries[3], facts={"record": record}), *entries[4:]])
    assert "iteration 3 differs: the digest of its update" in fullrank("verify", str(run)).error
    rewrite(run, [altered(entries[0], facts={"sample": [0, "0", "9", 16]}), *entries[1:]])
    assert "iteration 0 differs: its journal entry" in fullrank("verify", str(run)).error
    rewrite(run, [replace(entries[0], facts={"record": {}}), *entries[1:]])
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert "iteration 0 differs: its journal entry is not of this run: KeyError" in outcome.error


def test_other_bits_from_the_first_iteration_on_may_be_the_machine_s(
    run: Path, fullrank: Any
) -> None:
    entries = entries_of(run)
    digests = ["00" * 16] * len(entries[0].facts["digests"])
    rewrite(run, [altered(entries[0], facts={"digests": digests}), *entries[1:]])
    (run / "numerics.json").write_text('[{"identity": "a", "fingerprint": "another kernel"}]')
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert "iteration 0 differs: the updates of units [0, 1, 2]; nothing was" in outcome.error
    assert "this machine or version may compute other bits" in outcome.error
    assert "the run's is another kernel" in outcome.error


def test_wrong_rows_on_a_machine_with_the_run_s_fingerprint_are_said_with_all_iterations(
    run: Path, fullrank: Any
) -> None:
    """As where a replay service hands out other rows than it stores."""
    entries = entries_of(run)
    digests = ["00" * 16] * len(entries[0].facts["digests"])
    wrong = [
        altered(entry, facts={"digests": digests}) if entry.iteration in (0, 2, 3, 4, 7) else entry
        for entry in entries
    ]
    rewrite(run, wrong)
    keep_caveat(run, "replay lost rows before iteration 8")
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert "iteration 0 differs: the updates of units [0, 1, 2]; so do" in outcome.error
    assert "; caveat: replay lost rows before iteration 8" in outcome.error
    assert "so do iterations 2 to 4, 7; this machine has the run's numeric" in outcome.error
    assert "the rows that the learners were given are not those in the table" in outcome.error


def unchecked(trainer: Trainer) -> dict[str, Any]:
    """``Trainer.state`` of an earlier version."""
    state = trainer.algorithm.optimiser.state()
    return {f"algorithm.{name}": array for name, array in state.items()}


def test_parameters_that_an_earlier_version_committed_though_not_finite_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fullrank: Any
) -> None:
    spoilt = (*MADDPG, "algorithm.learning_rate=1e38", "iterations=1", "checkpoint.every=9")
    with monkeypatch.context() as patch:
        patch.setattr(GroupedOptimiser, "check", lambda *_: None)
        patch.setattr(Trainer, "state", unchecked)
        patch.setattr(checkpoint, "LEARNED", "-")
        run = train(tmp_path / "run", *spoilt)
    outcome = fullrank("verify", str(run))
    assert outcome.code == 15
    assert "fullrank: iteration 0: the critic network of agent 0 has an entry of" in outcome.error
    for verb in ("eval", "export"):
        outcome = fullrank(verb, str(run))
        assert outcome.code == 8
        assert "'critic/0' holds values that are not finite" in outcome.error
        assert outcome.error.count("\n") == 1
    shutil.rmtree(run / "checkpoints")  # the journal still tells
    with pytest.raises(Unsound, match="iteration 0: the critic network of agent 0"):
        train(run, *spoilt[:2], "iterations=2")
