"""The command that tests and measures a CUDA device, of which a CPU runs small parts."""

import importlib
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tools" / "gpu.py"


def measured(output: Path, *words: str, status: int = 0) -> list[dict[str, object]]:
    """The rows of a dry command that exits with this status."""
    command = [sys.executable, str(PROGRAM), "--dry", "--output", str(output), *words]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == status, found.stdout + found.stderr
    assert (output / "summary.md").read_text() in found.stdout
    return [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]


def test_parts_are_measured_on_a_cpu_and_what_is_not_there_is_a_line(tmp_path: Path) -> None:
    machine, *rows = measured(tmp_path, "--only", "aps", "company", "ranks")
    assert (machine["part"], "torch" in str(machine["player"])) == ("environment", True)
    own, _, company, cards = rows
    assert (own["part"], own["player"], own["times"]) == ("aps 4 32 64", "Fullrank", 1.0)
    assert (company["holds"], company["error"]) == (True, 0.0)
    assert cards["skipped"] == "0 CUDA devices: no nccl, no two cards"


def test_parts_that_there_is_no_time_for_are_named(tmp_path: Path) -> None:
    rows = measured(tmp_path, "--limit", "0", "--only", "tests", "company", "services", status=2)
    assert [row.get("no_time") for row in rows] == [None, *["0 s left"] * 3]
    last = (tmp_path / "summary.md").read_text().splitlines()[-3:]
    parts = "tests, company 4 16 32, services 20"
    assert last == ["failed: none", f"no_time: {parts}", "skipped: none"]


def test_what_is_asked_of_a_ratio_stands_beside_it_and_a_failure_is_told_from_an_absence(
    tmp_path: Path,
) -> None:
    _, *rows = measured(tmp_path, "--only", "qmix")
    ratios = {row["player"]: float(str(row["times"])) for row in rows if "times" in row}
    alone, own = ratios["PyMARL's way"], ratios["Fullrank, units: 8"]
    assert ratios["PyMARL's way, to 8 units"] == pytest.approx(alone / own, abs=1e-3)
    table = (tmp_path / "summary.md").read_text()
    assert f"| qmix 8 6 | PyMARL's way | {alone:.4g} |  |" in table
    assert f"| qmix 8 6 | Fullrank, units: 8 | {own:.4g} | at most 1.3 |" in table
    session = program().Session(tmp_path, limit_s=100.0, dry=True)
    session.row("qmix 8 6", player="JAX", times=0.5)
    session.row("qmix 8 6", player="TorchRL", skipped="ModuleNotFoundError")
    assert session.status == 0
    assert "| qmix 8 6 | TorchRL | not measured | at least 1 |" in session.summary()
    session.row("whole 40", no_time="not done in 3 s")
    assert session.status == 2
    session.row("qmix 8 6", player="TorchRL", failed="TypeError")
    assert session.status == 1


def test_a_failing_test_is_named_and_all_that_is_printed_is_kept(tmp_path: Path) -> None:
    session = program().Session(tmp_path, limit_s=100.0, dry=True)
    lines = "t.py::one PASSED", "FAILED t.py::two - assert 1 == 2", "1 failed, 1 passed"
    session.run("tests", ["-c", f"print(*{lines!r}, sep=chr(10)); exit(1)"], {}, 0.0)
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["failed"] for row in rows] == [lines[1], f"exit code 1: {lines[2]}"]
    assert (tmp_path / "log.txt").read_text().splitlines() == ["== tests", *lines]


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
