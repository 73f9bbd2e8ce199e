"""``fullrank train`` from the command line: whole runs, equal bits, nothing left behind."""

import signal
from contextlib import suppress
from itertools import islice
from pathlib import Path

import psutil
import pytest
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    config_of,
    digests,
    end,
    fullrank,
    interrupt,
    learners_of,
    processes_of,
    records,
    settings,
    shorten,
    start,
    tracebacks,
)
from tests.e2e.test_sockets import sockets_of
from tests.waiting import WAIT_S, wait_until

from fullrank.local import LocalRun

pytestmark = pytest.mark.e2e

ITERATIONS = 12

SLOW = settings(ENDLESS, "compute.emulate_unit_s=0.06", "checkpoint.every=7")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A coded run that ended by itself, and its output."""
    path = tmp_path_factory.mktemp("clean") / "run"
    outcome = fullrank("train", "--run-dir", str(path), *settings(f"iterations={ITERATIONS}"))
    assert (outcome.code, outcome.error) == (0, "")
    return path, outcome.output


@pytest.fixture
def clean_run(clean: tuple[Path, str]) -> Path:
    return clean[0]


@pytest.mark.smoke
def test_a_run_ends_whole_with_the_bits_of_the_centralised_reference(clean_run: Path) -> None:
    lines = records(clean_run)
    assert [record.iteration for record in lines] == list(range(ITERATIONS))
    assert all(record.exact and record.error_bound == 0.0 for record in lines)
    assert all(record.bytes_sent["parameters"] > 0 for record in lines)
    assert all(set(record.bytes_received) == {"digests"} for record in lines)  # vectors are shared
    learners = config_of(clean_run).learners
    assert all(len(record.received) == learners for record in lines)
    assert digests(clean_run) == centralised(clean_run)
    assert tracebacks(clean_run) == []
    assert processes_of(clean_run) == []
    assert not list((clean_run / "services").iterdir())


def test_progress_in_a_pipe_is_plain_lines(clean: tuple[Path, str]) -> None:
    path, output = clean
    assert "\x1b" not in output
    assert output.splitlines()[1] == f"run {path}"
    assert f"\nfinished: {ITERATIONS} iterations in {path}\nreturn: -" in output
    assert output.endswith(f"\nwatch an episode: fullrank render {path}\n")
    assert f"iteration {ITERATIONS}/{ITERATIONS}  return " in output


def test_a_killed_parent_leaves_no_process(run_dir: Path) -> None:
    process = start("train", "--run-dir", str(run_dir), *SLOW)
    wait_until(lambda: committed(run_dir) >= 1, what="an iteration")
    process.kill()
    process.communicate()
    wait_until(lambda: not processes_of(run_dir), what="no process is left")


def test_services_that_were_all_killed_resume_to_the_same_bits(run_dir: Path) -> None:
    process = start("train", "--run-dir", str(run_dir), *SLOW)
    wait_until(lambda: committed(run_dir) >= 9, what="nine iterations")
    services, sockets = psutil.Process(process.pid).children(recursive=True), sockets_of(run_dir)
    process.send_signal(signal.SIGSTOP)  # it stops none because another has ended
    for each in services:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.kill()
    process.communicate()
    wait_until(lambda: not processes_of(run_dir), what="no process is left")
    assert sockets
    assert all(path.exists() for path in sockets)
    last = committed(run_dir) + 9
    shorten(run_dir, iterations=last)
    outcome = fullrank("run", "resume", "--attach", str(run_dir))
    assert (outcome.code, outcome.error) == (0, "")
    assert [path.parent for path in sockets if path.parent.exists()] == []
    assert [record.iteration for record in records(run_dir)] == list(range(last))
    assert digests(run_dir) == [each.update_digest for each in LocalRun(config_of(run_dir)).train()]


def test_a_killed_learner_is_borne_by_the_code(run_dir: Path) -> None:
    process = start("train", "--run-dir", str(run_dir), *SLOW, "--set", "code.tolerance=1")
    wait_until(lambda: committed(run_dir) >= 3, what="three iterations")
    learners = learners_of(run_dir)
    assert len(learners) == 4
    learners[0].send_signal(signal.SIGKILL)
    learners[0].wait(WAIT_S)
    since = committed(run_dir) + 1  # the round that is open may hold its contribution
    wait_until(lambda: committed(run_dir) >= since + 10, what="ten more rounds")
    interrupt(process)
    outcome = end(process)
    assert (outcome.code, outcome.error) == (130, "")
    lines = records(run_dir)
    assert all(len(record.received) == 3 for record in lines[since:])
    recomputed = islice(LocalRun(config_of(run_dir)), len(lines))
    assert digests(run_dir) == [each.update_digest for each in recomputed]


def test_a_killed_learner_is_started_again_and_takes_rows(run_dir: Path) -> None:
    """It is the only one, so that the run waits until it is back."""
    sizes = ("--learners", "1", "--code", "uncoded")
    process = start("train", "--run-dir", str(run_dir), *SLOW, *sizes)
    wait_until(lambda: committed(run_dir) >= 3, what="three iterations")
    [learner] = learners_of(run_dir)
    learner.send_signal(signal.SIGKILL)
    learner.wait(WAIT_S)
    since = committed(run_dir) + 1  # the round that is open may hold its contribution
    wait_until(lambda: committed(run_dir) > since, what="rounds with the one that is back")
    interrupt(process)
    assert end(process).code == 130
    assert (run_dir / "logs" / "learner.log").read_text().count("replica_died") == 1
    recomputed = islice(LocalRun(config_of(run_dir)), committed(run_dir))
    assert digests(run_dir) == [each.update_digest for each in recomputed]
