"""Recorded runs of release 0.3 are read by every verb, and continued by none."""

import shutil
from pathlib import Path

import pytest
from tests.faultlab.history import read_history
from tests.unit.cli.conftest import Command

from fullrank.runs.checkpoint import newest
from fullrank.runs.journal import read
from fullrank.runs.record import read_records

RECORDED = Path(__file__).parents[2] / "golden" / "runs"
READERS = (
    "run status RUN",
    "plot RUN --output OUT.png",
    "checkpoint ls RUN",
    "checkpoint verify RUN",
    "checkpoint diff RUN RUN",
    "checkpoint export RUN OUT.zip",
    "config show --config RUN/config.toml",
    "eval RUN --episodes 1",
    "compare RUN --episodes 1",
    "export RUN --output OUT",
)
CONTINUERS = (
    "run resume RUN --attach",
    "run resume RUN --attach --local",
    "verify RUN",
    "serve controller --run-dir RUN --config RUN/config.toml",
    "serve controller --run-dir RUN --config RUN/config.toml --set seed=1",
)


@pytest.fixture(params=["release_0_3", "release_0_3_qmix"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.unpack_archive(RECORDED / f"{request.param}.zip", tmp_path / "run")
    return tmp_path / "run"


def contents(run: Path) -> dict[Path, bytes]:
    """Every file of a directory, but the lock that a refused controller has held."""
    return {
        path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "lock"
    }


def words(line: str, run: Path, tmp_path: Path) -> list[str]:
    return line.replace("RUN", str(run)).replace("OUT", str(tmp_path / "out")).split()


def test_its_records_journal_checkpoints_and_history_are_read(recorded: Path) -> None:
    iterations = [record.iteration for record in read_records(recorded / "metrics.jsonl")]
    assert iterations[-1] == newest(recorded / "checkpoints").iteration
    first = min(int(path.name[:6]) for path in (recorded / "journal").iterdir())
    assert [entry.iteration for entry in read(recorded / "journal", first=first)] == iterations[
        first:
    ]
    assert len(read_history(recorded).controller) > 10


@pytest.mark.parametrize("line", READERS)
def test_a_verb_that_reads_a_run_takes_it(
    line: str, recorded: Path, tmp_path: Path, fullrank: Command
) -> None:
    outcome = fullrank(*words(line, recorded, tmp_path))
    assert outcome.code == 0, outcome.error
    assert outcome.error == ""


@pytest.mark.parametrize("recorded", ["release_0_3"], indirect=True)
def test_its_episodes_are_drawn(recorded: Path, tmp_path: Path, fullrank: Command) -> None:
    outcome = fullrank(*words("render RUN --output OUT.gif", recorded, tmp_path))
    assert outcome.code == 0, outcome.error


@pytest.mark.parametrize("line", CONTINUERS)
def test_a_verb_that_would_continue_it_refuses_and_names_the_release(
    line: str, recorded: Path, tmp_path: Path, fullrank: Command
) -> None:
    was = contents(recorded)
    outcome = fullrank(*words(line, recorded, tmp_path))
    assert outcome.code == 7
    *before, last = outcome.error.splitlines()
    assert before == [] or "serve" in line
    assert not any(str(recorded) in text for text in before)
    assert f"{recorded} is a run of fullrank 0.3 or earlier" in last
    assert last.endswith("; install fullrank 0.3 to resume it")
    assert contents(recorded) == was


def test_its_archive_is_imported_to_be_read_and_not_to_go_on(
    recorded: Path, tmp_path: Path, fullrank: Command
) -> None:
    archive, copy, same = (str(tmp_path / name) for name in ("run.zip", "copy", "same"))
    assert fullrank("checkpoint", "export", str(recorded), archive).code == 0
    imported = fullrank("checkpoint", "import", archive, copy)
    assert imported.code == 0
    assert "fullrank run resume" not in imported.output
    assert fullrank("eval", copy, "--episodes", "1").code == 0
    assert fullrank("run", "resume", "--attach", "--local", copy).code == 7
    refused = fullrank("checkpoint", "import", "--same-run", archive, same)
    assert refused.code == 7
    assert "run.zip is a run of fullrank 0.3 or earlier" in refused.error
    assert not Path(same).exists()
