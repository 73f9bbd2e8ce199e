"""``fullrank verify``: a run is recomputed from journal and table, and each fault is named."""

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.algorithms.optimiser import GroupedOptimiser
from fullrank.common.errors import Unsound
from fullrank.common.types import FloatArray
from fullrank.config import load, to_toml
from fullrank.replay.file_format import FileLayout, read_header
from fullrank.replay.samplers import Sample
from fullrank.replay.store import table_file
from fullrank.rpc.process import Launch
from fullrank.runs import checkpoint, journal
from fullrank.runs.caveats import keep_caveat, lasting_caveats
from fullrank.runs.identity import run_of
from fullrank.runs.journal import Journal, supersede
from fullrank.runs.journal_format import Entry
from fullrank.runs.record import METRICS, read_records
from fullrank.runs.snapshot import REPLAY, take
from fullrank.runs.verdicts import Party, RunVerdict, write_verdicts
from fullrank.training.trainer import Trainer
from fullrank_controller.local.server import serve
from fullrank_controller.rounds import replay_pipeline

ITERATIONS = 8
TINY = (
    f"iterations={ITERATIONS}",
    "environment.copies=2",
    "collect.steps=5",
    "collect.warmup=64",
    "collect.warmup_copies=8",
    "algorithm.hidden=16",
    "replay.capacity=4096",
    "checkpoint.every=3",
    "checkpoint.keep=9",
    "metrics.sinks=[]",
)
MADDPG = ("algorithm.batch_size=16",)
QMIX = (
    "environment.name=two_step_game",
    "environment.agents=0",
    "algorithm.name=qmix",
    "algorithm.micro_batches=3",
    "algorithm.batch_size=7",
    "algorithm.target_every=3",
)
DARL1N = ("environment.name=ising", "algorithm.name=darl1n", "algorithm.batch_size=4")
TEAMS = {
    "maddpg": MADDPG,
    "micro-batches": (*MADDPG, "algorithm.micro_batches=3"),
    "prioritised": (*MADDPG, "sampling.method=prioritised", "collect.lag=1"),
    "qmix": QMIX,
    "prioritised episodes": (*QMIX, "sampling.method=prioritised"),
    "darl1n": DARL1N,
}


def train(run: Path, *settings: str) -> Path:
    """Run, or resume, in this process to the end."""
    resolved = load(None, environ={}, overrides=[*TINY, *settings]).check()
    launch = Launch(resolved=resolved, run_dir=run, until_finished=True)
    assert asyncio.run(serve(launch, run, asyncio.Event()))
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("runs")
    return {name: train(directory / name, *settings) for name, settings in TEAMS.items()}


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the run of the first team."""
    return Path(shutil.copytree(runs["maddpg"], tmp_path / "run"))


def entries_of(run: Path) -> list[Entry]:
    return journal.read(run / "journal", first=0)


def sample_of(entry: Entry) -> Sample:
    seed, tail, head, size = entry.facts["sample"]
    return Sample(
        table="transitions",
        seed=seed,
        iteration=entry.iteration,
        tail=tail,
        head=head,
        size=size,
    )


def flip(path: Path, place: int) -> None:
    """Flip one bit of a byte; a negative place counts from the end."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def flip_row(run: Path, position: int, column: int = 0) -> None:
    """Flip the lowest bit of an entry of a row."""
    path = table_file(run / REPLAY, run_of(run))
    row_size, _, slots = read_header(path, path.read_bytes()[:4096])
    layout = FileLayout(row_size=row_size, slots=slots)
    with path.open("r+b") as file:
        place = layout.rows_at + layout.row_bytes * (position % slots) + 4 * column
        byte = os.pread(file.fileno(), 1, place)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), place)


def rewrite(run: Path, entries: Sequence[Entry]) -> None:
    """Store other entries, with checksums of their own."""
    shutil.rmtree(run / "journal")
    own = Journal(run / "journal", term=1, first=entries[0].iteration, confirm=lambda: None)
    for entry in entries:
        assert entry.updates is not None
        own.append(entry.iteration, facts=entry.facts, updates=entry.updates)
    own.close()


def altered(entry: Entry, *, facts: Any = None, updates: FloatArray | None = None) -> Entry:
    changed = {**json.loads(json.dumps(entry.facts)), **(facts or {})}
    return replace(entry, facts=changed, updates=entry.updates if updates is None else updates)


@pytest.mark.parametrize("team", TEAMS)
def test_every_iteration_is_recomputed(team: str, runs: dict[str, Path], fullrank: Any) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs[team].rglob("*")}
    outcome = fullrank("verify", str(runs[team]))
    assert (outcome.code, outcome.error) == (0, "")
    assert outcome.output == (
        f"{runs[team]}: {ITERATIONS} committed iterations recomputed, 0 to {ITERATIONS - 1}: "
        "units, updates and checkpoints are equal in every bit\n"
    )
    assert {path: path.stat().st_mtime_ns for path in runs[team].rglob("*")} == before


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
    runs: dict[str, Path], tmp_path: Path, fullrank: Any
) -> None:
    run = Path(shutil.copytree(runs["qmix"], tmp_path / "run"))
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


def test_verdicts_of_the_run_are_repeated(run: Path, fullrank: Any) -> None:
    party = Party(learner=2, host="node", process="abcd")
    verdict = RunVerdict(kind="convicted", term=1, iteration=3, reason="it lied", party=party)
    write_verdicts(run, [verdict])
    outcome = fullrank("verify", str(run))
    assert outcome.code == 0
    assert "learner 2 on node (process abcd) was found wrong, iteration 3 of" in outcome.output
    (run / "verdicts.json").write_text('[{"kind": "unheard of"}]')
    outcome = fullrank("verify", str(run))
    assert outcome.code == 8
    assert "verdicts.json is damaged (it holds no verdicts)" in outcome.error


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


def test_iterations_that_were_taken_back_do_not_count(run: Path, fullrank: Any) -> None:
    entries = entries_of(run)
    supersede(run / "journal", term=2, first=5)
    train(run, *MADDPG)
    assert [entry.facts["record"]["term"] for entry in entries_of(run)] == [1] * 5 + [2] * 3
    outcome = fullrank("verify", str(run))
    assert (outcome.code, outcome.error) == (0, "")
    assert f"{len(entries)} committed iterations recomputed" in outcome.output


@pytest.fixture
def _few_spare_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay keeps the rows of one iteration beyond its capacity."""
    monkeypatch.setattr(replay_pipeline, "spare_rows", lambda config, training: 10)


@pytest.mark.usefixtures("_few_spare_rows")
def test_it_reaches_as_far_as_the_table(tmp_path: Path, fullrank: Any) -> None:
    run = train(tmp_path / "run", *MADDPG, "replay.capacity=100")
    outcome = fullrank("verify", str(run))
    assert (outcome.code, outcome.error) == (0, "")
    assert "2 committed iterations recomputed, 6 to 7: " in outcome.output
    assert outcome.output.endswith(
        "\nnot recomputed: iterations 0 to 5: position 24 was evicted: the tail is 34\n"
    )


def test_it_reaches_as_far_as_the_journal(tmp_path: Path, fullrank: Any) -> None:
    run = train(tmp_path / "run", *MADDPG, "checkpoint.keep=2")
    outcome = fullrank("verify", str(run))
    assert (outcome.code, outcome.error) == (0, "")
    assert "2 committed iterations recomputed, 6 to 7: " in outcome.output
    assert "not recomputed: iterations 0 to 5: the journal begins with 6\n" in outcome.output


@pytest.mark.usefixtures("_few_spare_rows")
def test_updates_too_large_to_store_are_recomputed_from_checkpoint_to_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fullrank: Any
) -> None:
    monkeypatch.setattr(journal, "UPDATE_BYTES", 0)
    run = train(tmp_path / "run", *MADDPG, "replay.capacity=120")
    outcome = fullrank("verify", str(run))
    assert (outcome.code, outcome.error) == (0, "")
    assert "2 committed iterations recomputed, 6 to 7: " in outcome.output
    assert "no checkpoint holds the parameters before it" in outcome.output


def test_a_table_that_was_lost_and_filled_anew_is_a_caveat_until_the_end_and_no_fault(
    tmp_path: Path, fullrank: Any
) -> None:
    run = train(tmp_path / "run", *MADDPG, "iterations=4")
    shutil.rmtree(run / "replay")
    train(run, *MADDPG, "iterations=6")
    train(run, *MADDPG)
    [caveat] = lasting_caveats(run)
    assert caveat.startswith(
        "replay lost rows before iteration 4: of the acknowledged positions 0 "
    )
    assert "it held none" in caveat
    stated = [record.caveats for record in read_records(run / METRICS)]
    assert stated == [()] * 4 + [(caveat,)] * 4
    checked = fullrank("checkpoint", "verify", str(run))
    assert (checked.code, checked.output.endswith(f"\ncaveat: {caveat}\n")) == (0, True)
    archived = tmp_path / "archive"
    take(run, archived)
    assert lasting_caveats(archived) == [caveat]
    outcome = fullrank("verify", str(run))
    assert (outcome.code, outcome.error) == (0, "")
    assert "4 committed iterations recomputed, 4 to 7: " in outcome.output
    assert "not recomputed: iterations 0 to 3: its rows were lost" in outcome.output
    assert outcome.output.endswith(f"\ncaveat: {caveat}\n")


def test_a_copy_beside_its_original_goes_on_with_the_copied_rows(
    tmp_path: Path, fullrank: Any
) -> None:
    """It is another run, and the tables in its directory are that run's from then on."""
    run = train(tmp_path / "run", *MADDPG, "iterations=4")
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    train(copy, *MADDPG)
    assert run_of(copy) != run_of(run)
    assert [path.name for path in (copy / REPLAY).iterdir() if path.is_dir()] == [run_of(copy)]
    assert lasting_caveats(copy) == []
    assert "8 committed iterations recomputed, 0 to 7: " in fullrank("verify", str(copy)).output


def test_a_run_of_version_0_2_goes_on_with_its_rows(tmp_path: Path, fullrank: Any) -> None:
    run = train(tmp_path / "run", *MADDPG, "iterations=4")
    folder = run / REPLAY / run_of(run)
    for path in list(folder.iterdir()):
        path.rename(run / REPLAY / path.name)  # where that version kept them
    folder.rmdir()
    assert "4 committed iterations recomputed" in fullrank("verify", str(run)).output
    train(run, *MADDPG)
    assert {path.name for path in folder.iterdir()} == {"fence.json", "transitions.table"}
    assert lasting_caveats(run) == []
    assert "8 committed iterations recomputed, 0 to 7: " in fullrank("verify", str(run)).output


def test_a_run_that_goes_on_is_recomputed_as_far_as_it_has_come(run: Path, fullrank: Any) -> None:
    [segment] = (run / "journal").glob("000006-*")
    (run / "journal" / "000008-000001.journal").unlink(missing_ok=True)
    segment.write_bytes(segment.read_bytes()[:-5])  # a record that is being written
    shutil.rmtree(run / "checkpoints" / "000007")
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]))
    outcome = fullrank("verify", str(run))
    assert (outcome.code, outcome.error) == (0, "")
    assert "7 committed iterations recomputed, 0 to 6: " in outcome.output


def test_what_cannot_be_recomputed_is_refused_in_one_line(
    run: Path, tmp_path: Path, fullrank: Any
) -> None:
    def refused(directory: Path, reason: str) -> None:
        outcome = fullrank("verify", str(directory))
        assert (outcome.code, outcome.error.count("\n"), outcome.output) == (1, 1, "")
        assert reason in outcome.error

    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "is this a run?")
    refused(tmp_path / "nowhere", "there is no run")
    table_file(run / REPLAY, run_of(run)).rename(run / "moved")
    refused(run, "copy the file from there")
    shutil.rmtree(run / "journal")
    refused(run, "holds no committed iteration")
    independent = [*TINY, *DARL1N, "algorithm.data=independent"]
    (run / "config.toml").write_text(to_toml(load(None, environ={}, overrides=independent).config))
    refused(run, "its learners drew transitions of their own")


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
