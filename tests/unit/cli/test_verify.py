"""``fullrank verify``: a run is recomputed as far as its journal and table reach."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.verified import DARL1N, ITERATIONS, MADDPG, TEAMS, TINY, entries_of, train
from tests.unit.runs.test_journal import condemn

from fullrank.config import load, to_toml
from fullrank.replay.store import table_file
from fullrank.runs import journal
from fullrank.runs.ending import lasting_caveats
from fullrank.runs.identity import run_of
from fullrank.runs.journal_format import Entry, SegmentReader, encode
from fullrank.runs.record import METRICS, read_records
from fullrank.runs.snapshot import REPLAY, take_snapshot
from fullrank.runs.verdicts import Party, RunVerdict, write_verdicts
from fullrank_controller.rounds import replay_pipeline


@pytest.mark.parametrize(
    "team",
    [
        pytest.param(each, marks=() if each in ("maddpg", "qmix") else pytest.mark.integration)
        for each in TEAMS
    ],
)
def test_every_iteration_is_recomputed(
    team: str, trained: Callable[[str], Path], fullrank: Any
) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained(team).rglob("*")}
    outcome = fullrank("verify", str(trained(team)))
    assert (outcome.code, outcome.error) == (0, "")
    assert outcome.output == (
        f"{trained(team)}: {ITERATIONS} committed iterations recomputed, 0 to {ITERATIONS - 1}: "
        "units, updates and checkpoints are equal in every bit\n"
    )
    assert {path: path.stat().st_mtime_ns for path in trained(team).rglob("*")} == before


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
    assert "verdicts.json is damaged (it holds no verdicts" in outcome.error


def test_condemned_iterations_do_not_count(run: Path, fullrank: Any) -> None:
    entries = entries_of(run)
    condemn(run / "journal", term=1, first=5)
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


@pytest.mark.integration
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
    take_snapshot(run, archived)
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
    refused(run, "config.toml was changed: by run.json the run has another environment")
    facts = json.loads((run / "run.json").read_text())
    del facts["config_digest"]
    (run / "run.json").write_text(json.dumps(facts))
    refused(run, "its learners drew transitions of their own")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda entry: ({}, entry.updates), "the iteration: "),
        (lambda entry: (entry.facts, entry.updates[:, :3]), "its update has shape"),
        (
            lambda entry: (
                entry.facts | {"record": entry.facts["record"] | {"iteration": 99}},
                entry.updates,
            ),
            "has the record of another one",
        ),
    ],
)
def test_a_journal_that_is_not_of_the_run_is_one_line_for_resume_and_verify(
    spoil: Callable[[Entry], tuple[Any, Any]], reason: str, run: Path, fullrank: Any
) -> None:
    for path in (run / "journal").glob("*.journal"):
        pieces = (
            piece
            for entry in SegmentReader(path)
            for piece in encode(entry.iteration, *spoil(entry), stored=True)
        )
        content = b"".join(pieces)
        path.unlink()
        path.write_bytes(content)
    outcome = fullrank("verify", str(run))
    assert outcome.code == 10
    assert outcome.error.count("\n") == 1
    shutil.rmtree(max((run / "checkpoints").iterdir()))
    outcome = fullrank("run", "resume", "--local", "--attach", str(run))
    assert outcome.code in (1, 8, 10)
    assert reason in outcome.error
    assert outcome.error.count("\n") == 1
