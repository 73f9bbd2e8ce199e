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
    final_state,
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
def test_a_run_ends_whole_and_leaves_nothing_running(clean_run: Path) -> None:
    lines = records(clean_run)
    assert [record.iteration for record in lines] == list(range(ITERATIONS))
    assert all(record.exact and record.error_bound == 0.0 for record in lines)
    assert all(record.bytes_sent["parameters"] > 0 for record in lines)
    assert all(set(record.bytes_received) == {"digests"} for record in lines)  # vectors are shared
    learners = config_of(clean_run).learners
    assert all(len(record.received) == learners for record in lines)
    assert processes_of(clean_run) == []
    assert not list((clean_run / "services").iterdir())


def test_the_logs_of_a_clean_run_hold_no_traceback(clean_run: Path) -> None:
    assert tracebacks(clean_run) == []


@pytest.mark.smoke
def test_a_run_commits_the_bits_of_the_centralised_reference(clean_run: Path) -> None:
    assert digests(clean_run) == centralised(clean_run)


@pytest.mark.parametrize(
    "options",
    [
        ("--code", "uncoded", "--learners", "3"),
        ("--code", "mds", "--learners", "5", "--stragglers", "2", "--delay", "0.3"),
    ],
    ids=" ".join,
)
def test_no_code_and_no_straggler_changes_a_bit(
    clean_run: Path, run_dir: Path, options: tuple[str, ...]
) -> None:
    outcome = fullrank(
        "train", "--run-dir", str(run_dir), *options, *settings(f"iterations={ITERATIONS}")
    )
    assert (outcome.code, outcome.error) == (0, "")
    assert digests(run_dir) == digests(clean_run)
    assert final_state(run_dir) == final_state(clean_run)


def test_progress_in_a_pipe_is_plain_lines(clean: tuple[Path, str]) -> None:
    path, output = clean
    assert "\x1b" not in output
    assert output.splitlines()[1] == f"run {path}"
    assert f"\nfinished: {ITERATIONS} iterations in {path}\nreturn: -" in output
    assert output.endswith(f"\nwatch an episode: fullrank render {path}\n")
    assert f"iteration {ITERATIONS}/{ITERATIONS}  return " in output


def test_ctrl_c_leaves_a_run_that_resumes_to_the_same_bits(run_dir: Path) -> None:
    process = start("train", "--run-dir", str(run_dir), *SLOW)
    wait_until(lambda: committed(run_dir) >= 5, what="five iterations")
    interrupt(process)
    outcome = end(process)
    assert outcome.code == 130
    assert f"continue with: fullrank resume {run_dir}" in outcome.output
    assert outcome.error == ""
    assert processes_of(run_dir) == []
    assert tracebacks(run_dir) == []
    before = committed(run_dir)
    assert before >= 5

    shorten(run_dir, iterations=before + 9)
    outcome = fullrank("resume", str(run_dir))
    assert (outcome.code, outcome.error) == (0, "")
    reference = LocalRun(config_of(run_dir))
    assert digests(run_dir) == [each.update_digest for each in reference.train()]
    lines = records(run_dir)
    assert [record.iteration for record in lines] == list(range(before + 9))
    assert [record.term for record in lines] == [1] * before + [2] * 9


def test_a_killed_parent_leaves_no_process_and_a_run_to_resume(run_dir: Path) -> None:
    process = start("train", "--run-dir", str(run_dir), *SLOW)
    wait_until(lambda: committed(run_dir) >= 3, what="three iterations")
    process.kill()
    process.communicate()
    wait_until(lambda: not processes_of(run_dir), what="no process is left")
    shorten(run_dir, iterations=committed(run_dir) + 9)
    outcome = fullrank("resume", str(run_dir))
    assert (outcome.code, outcome.error) == (0, "")
    assert digests(run_dir) == [each.update_digest for each in LocalRun(config_of(run_dir)).train()]


def test_services_that_were_all_killed_resume_to_the_same_bits(run_dir: Path) -> None:
    process = start("train", "--run-dir", str(run_dir), *SLOW)
    wait_until(lambda: committed(run_dir) >= 9, what="nine iterations")
    services = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGSTOP)  # it stops none because another has ended
    for each in services:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.kill()
    process.communicate()
    wait_until(lambda: not processes_of(run_dir), what="no process is left")
    assert sorted(path.name for path in (run_dir / "services").iterdir()) != []
    last = committed(run_dir) + 9
    shorten(run_dir, iterations=last)
    outcome = fullrank("resume", str(run_dir))
    assert (outcome.code, outcome.error) == (0, "")
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


@pytest.mark.parametrize("count", [2, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_killed_learner_is_started_again_and_takes_rows(run_dir: Path, count: int) -> None:
    """Without redundancy another one computes what it held, if there is one, until it is back."""
    sizes = ("--learners", str(count), "--code", "uncoded")
    process = start("train", "--run-dir", str(run_dir), *SLOW, *sizes)
    wait_until(lambda: committed(run_dir) >= 3, what="three iterations")
    learners = learners_of(run_dir)
    assert len(learners) == count
    learners[0].send_signal(signal.SIGKILL)
    learners[0].wait(WAIT_S)
    since = committed(run_dir) + 1  # the round that is open may hold its contribution

    def whole() -> bool:
        return any(len(each.compute_s) == count for each in records(run_dir)[since:])

    wait_until(whole, what="rounds with the one that is back")
    interrupt(process)
    assert end(process).code == 130
    assert (run_dir / "logs" / "learner.log").read_text().count("replica_died") == 1
    recomputed = islice(LocalRun(config_of(run_dir)), committed(run_dir))
    assert digests(run_dir) == [each.update_digest for each in recomputed]


def test_a_pettingzoo_environment_trains(run_dir: Path) -> None:
    pytest.importorskip("mpe2", reason="needs the extra mpe")
    outcome = fullrank(
        "train",
        "--run-dir",
        str(run_dir),
        "--env",
        "mpe2.simple_speaker_listener_v4:parallel_env",
        *settings("iterations=3"),
    )
    assert (outcome.code, outcome.error) == (0, "")
    assert committed(run_dir) == 3
    assert config_of(run_dir).learners == 2  # its two agents
    assert tracebacks(run_dir) == []


def test_sides_learn_apart_and_their_returns_are_shown_apart(run_dir: Path) -> None:
    outcome = fullrank(
        "train", "--run-dir", str(run_dir), "--env", "keep_away", "--agents", "4",
        "--learners", "5", "--stragglers", "1", "--delay", "0.3",
        *settings("iterations=4", 'algorithm.ddpg_sides=["adversary"]'),
    )  # fmt: skip
    assert (outcome.code, outcome.error) == (0, "")
    for record in records(run_dir):
        assert record.variant == "openai"
        sides = [value for value in record.side_returns.values() if value is not None]
        assert list(record.side_returns) == ["adversary", "good"]
        assert sum(sides) == pytest.approx(record.return_mean)
    assert "(adversary " in outcome.output
    assert digests(run_dir) == centralised(run_dir)
