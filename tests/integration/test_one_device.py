"""The command that tests and measures a CUDA device, of which a CPU runs small parts."""

import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tools" / "gpu.py"


def measured(output: Path, *words: str, status: int = 0) -> list[dict[str, object]]:
    """The rows of a dry command that exits with this status."""
    command = [sys.executable, str(PROGRAM), "--dry", "--output", str(output), *words]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == status, found.stdout + found.stderr
    assert (output / "summary.md").read_text() in found.stdout
    return rows_in(output)


def rows_in(output: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]


def planned(output: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[dict[str, object]]:
    """The rows of parts for which a dry command has no time, without what it imports."""
    gpu = program()
    monkeypatch.setattr(gpu, "broken", lambda imports, variables: "")
    assert gpu.main(["--dry", "--output", str(output), "--limit", "0", *words]) == 2
    return of_parts(rows_in(output))


def of_parts(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows of parts, without those of this host."""
    return [row for row in rows if row["part"] != "environment"]


def test_parts_are_measured_on_a_cpu_and_what_is_not_there_is_a_line(tmp_path: Path) -> None:
    rows = measured(tmp_path, "--only", "aps", "company 4 16 32", "ranks")
    assert (rows[0]["part"], "torch" in str(rows[0]["player"])) == ("environment", True)
    own, *peers, aps, company, end, cards, _ = of_parts(rows)
    assert (own["part"], own["player"], own["times"]) == ("aps 4 32 64", "Fullrank", 1.0)
    assert [peer["player"] for peer in peers] == ["TorchRL"]
    assert [*aps] == [*end] == ["part", "took_s"]
    assert (company["holds"], company["error"]) == (True, 0.0)
    nccl = torch.distributed.is_nccl_available()
    absent = "0 CUDA devices" + ("" if nccl else ", torch without nccl")
    assert (cards["player"], cards["skipped"]) == ("two cards", absent)


def test_a_peer_that_cannot_be_imported_is_named_before_the_first_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for peer in ("torchrl", "jax"):
        package = tmp_path / "packages" / peer
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("import needed_by_it")
    (tmp_path / "packages" / "tensordict.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    _, *peers = measured(tmp_path / "out", "--limit", "0", "--only", "whole", status=2)[:-1]
    said = "no rows of it: ModuleNotFoundError: No module named 'needed_by_it'"
    assert [(row["player"], row["skipped"]) for row in peers] == [("TorchRL", said), ("JAX", said)]


def test_parts_that_there_is_no_time_for_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = planned(tmp_path, monkeypatch, "--only", "tests", "company", "services")
    assert [row.get("no_time") for row in rows] == ["0 s left"] * 3
    last = (tmp_path / "summary.md").read_text().splitlines()[-3:-1]
    assert last == ["failed: none", "no_time: tests, company 4 16 32, services 20"]


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        (("--only", "updates 4 16 32", "services"), ["updates 4 16 32", "services 20"]),
        (("--only", "tests"), ["tests"]),
        (
            ("--without", "tests", "updates", "qmix", "played", "whole", "goals", "ippo", "ranks"),
            [
                *("aps 4 32 64", "worlds 4 8 64", "company 4 16 32"),
                "overlap 4 32 64",
                "services 20",
            ],
        ),
    ],
)
def test_parts_are_chosen_or_left_out_by_their_word_or_with_their_sizes(
    words: tuple[str, ...], taken: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [row["part"] for row in planned(tmp_path, monkeypatch, *words)] == taken


def test_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit):
        program().main(["--dry", "--only", "updates 1 2 3"])


SCRIPT = """
import json, sys
for part in sys.argv[1:]:
    print(json.dumps({"part": part, "times": 1.0}), flush=True)
    if part == "crashes":
        raise RuntimeError("out of memory")
    if part == "hangs":
        sys.stdin.read()
    print(json.dumps({"part": part, "took_s": 0.1}), flush=True)
"""


def test_parts_share_a_process_and_those_after_one_that_has_no_end_take_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = list[float]()

    class Limit:
        """Over at once for the fifth part that begins, which is the one that hangs."""

        def __init__(self, limit_s: float, end: Callable[[], None]) -> None:
            began.append(limit_s)
            self._end = end

        def start(self) -> None:
            if len(began) == 5:
                self._end()

        def cancel(self) -> None:
            """Nothing runs."""

    gpu = program()
    monkeypatch.setattr(gpu, "Timer", Limit)
    session = gpu.Session(tmp_path, limit_s=100.0, dry=True)
    left, taken = ["one", "two", "crashes", "three", "hangs", "four"], list[int]()
    inputs, outputs = os.pipe()  # never written
    monkeypatch.setattr(gpu.subprocess, "Popen", partial(subprocess.Popen, stdin=inputs))
    while left:
        taken.append(session.run(left, ["-c", SCRIPT, *left], {}, 0.0))
        left = left[taken[-1] :]
    os.close(outputs)
    assert taken[:2] == [3, 2]
    assert max(began) <= 100.0
    rows = rows_in(tmp_path)
    ends = [row for row in rows if "times" not in row]
    assert [row["part"] for row in ends] == ["one", "two", "crashes", "three", "hangs", "four"]
    assert ends[2]["failed"] == "exit code 1: RuntimeError: out of memory"
    assert str(ends[4]["no_time"]).startswith("not done in ")
    assert session.status == 1


@pytest.mark.thorough
def test_ratios_are_those_of_what_was_measured(tmp_path: Path) -> None:
    rows = of_parts(measured(tmp_path, "--only", "qmix"))
    ratios = {row["player"]: float(str(row["times"])) for row in rows if "times" in row}
    alone, own = ratios["PyMARL's way"], ratios["Fullrank, units: 8"]
    assert ratios["PyMARL's way, to 8 units"] == pytest.approx(alone / own, abs=1e-3)
    table = (tmp_path / "summary.md").read_text()
    assert f"| qmix 8 6 | PyMARL's way | {alone:.4g} |  |" in table
    assert f"| qmix 8 6 | Fullrank, units: 8 | {own:.4g} |  |" in table  # asked of a card alone


def test_what_is_asked_of_a_ratio_stands_beside_it_and_a_failure_is_told_from_an_absence(
    tmp_path: Path,
) -> None:
    session = program().Session(tmp_path, limit_s=100.0, dry=True)
    session.row("qmix 32 60", player="JAX", times=0.5)
    session.row("qmix 32 60", player="TorchRL", skipped="ModuleNotFoundError")
    session.row("qmix 32 60", player="Fullrank, units: 8", times=1.25)
    session.row("updates 8 1024 512", player="TorchRL", times=1.0)
    assert session.status == 0
    table = session.summary()
    assert "| qmix 32 60 | TorchRL | not measured | at least 1 |" in table
    assert "| qmix 32 60 | Fullrank, units: 8 | 1.25 | at most 1.3 |" in table
    assert "| updates 8 1024 512 | TorchRL | 1 |  |" in table  # of this size nothing is asked
    session.row("whole 600", no_time="not done in 3 s")
    assert session.status == 2
    session.row("qmix 32 60", player="TorchRL", failed="TypeError")
    assert session.status == 1


def test_a_failing_test_is_named_and_all_that_is_printed_is_kept(tmp_path: Path) -> None:
    session = program().Session(tmp_path, limit_s=100.0, dry=True)
    lines = "t.py::one PASSED", "FAILED t.py::two - assert 1 == 2", "1 failed, 1 passed"
    session.run(["tests"], ["-c", f"print(*{lines!r}, sep=chr(10)); exit(1)"], {}, 0.0)
    rows = rows_in(tmp_path)
    assert [row["failed"] for row in rows] == [lines[1], f"exit code 1: {lines[2]}"]
    assert (tmp_path / "log.txt").read_text().splitlines() == ["== tests", *lines]


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``benchmarks/one_device.py``."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("one_device")


REFUSED = "not_captured device=cuda:0 reason=operation not permitted"


def test_a_run_in_which_a_capture_failed_is_a_failed_row(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = '{"iteration_s": 1.0, "update_s": 0.5, "play_s": 0.5, "agent_updates_per_s": 2.0, '
    records += '"update_digest": "00"}'
    logged = [f"12:00:00 WARNING {REFUSED}", "12:00:00 WARNING another"]

    def train(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        run = Path(command[command.index("--run-dir") + 1])
        (run / "logs").mkdir(parents=True)
        (run / "metrics.jsonl").write_text(records)
        (run / "logs" / "local.log").write_text(logged.pop(0) + "\nCUDA kernel errors\n")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", train)
    rows = [benchmark.trained("cuda", 1) for _ in range(2)]
    assert [row.get("failed") for row in rows] == [REFUSED, None]
    assert [row["ms"] for row in rows] == [1e3, 1e3]


def test_a_part_in_which_a_capture_failed_has_a_failed_row(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(device: str, refuses: int) -> Iterator[dict[str, object]]:
        if refuses:
            logging.getLogger("fullrank.networks.fused.cuda").warning("%s\nfor debugging", REFUSED)
        yield {"player": "Fullrank", "times": 1.0}

    monkeypatch.setitem(benchmark.PARTS, "updates", part)
    for refuses in (1, 0):
        rows = [*benchmark.measured(f"updates {refuses}", "cuda")]
        assert [row.get("failed") for row in rows] == [None, *[REFUSED] * refuses, None]
        assert [*rows[-1]] == ["part", "took_s"]


def test_two_cards_are_measured_by_agents_and_by_transitions_where_torch_has_nccl(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list[tuple[str, ...]]()

    def train(device: str, iterations: int, *options: str, words: tuple[str, ...]) -> object:
        runs.append((device, *words[1:2], *words[-3:]))
        return {"ms": 1.0, "digest": words[-3]}

    monkeypatch.setattr(benchmark, "trained", train)
    monkeypatch.setattr(benchmark, "visible", lambda: 2)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    (row,) = benchmark.ranks("cuda:0", 1, 32, 1024, 512)
    assert row["skipped"] == "2 CUDA devices, torch without nccl"
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    rows = [*benchmark.ranks("cuda:0", 1, 32, 1024, 512)]
    splits = (("micro_batches=1", "split=agents"), ("micro_batches=2", "split=transitions"))
    assert runs == [
        (
            place,
            "environment.agents=32",
            f"algorithm.{parts}",
            f"ranks.{split}",
            f"ranks.count={count}",
        )
        for parts, split in splits
        for place, count in (("cuda:0", 1), ("cuda", 2))
    ]
    assert [row["player"] for row in rows][1::2] == [
        "two cards by agents",
        "two cards by transitions",
    ]
    assert all(row["holds"] for row in rows)


def test_services_of_a_checkout_that_is_not_installed_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    installed = importlib.metadata.distribution("fullrank").entry_points
    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert str(tmp_path) in program().environment(tmp_path)["PYTHONPATH"].split(":")
    (found,) = importlib.metadata.distributions(path=[str(tmp_path)])
    for group in ("fullrank.services", "fullrank.verbs", "console_scripts"):
        assert set(found.entry_points.select(group=group)) == set(installed.select(group=group))


def test_a_call_of_a_peer_in_jax_is_one_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax", reason="needs jax, which no extra installs")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    teams = importlib.import_module("jax_teams")
    players = [*teams.ppo(agents=2, inputs=4, actions=5, rows=8, hidden=4)]
    for _, call, _ in players:
        call()  # compiles
    for eager in ("split", "key", "fold_in"):
        monkeypatch.delattr(jax.random, eager)
    for _, call, _ in players:
        call()
