"""Test and measure the CUDA device of this host, by one command and within a time limit.

    make gpu                                      # ten minutes at most, into runs/gpu
    make gpu ARGS="--dry --output /tmp/gpu"       # all of it on the CPU, in small sizes
    make gpu PYTHON=/usr/bin/python3              # without .venv, by an interpreter that has torch

It needs no network. In order it says what this host has, runs the tests marked ``gpu``, takes the
measurements of ``benchmarks/one_device.py``, each in a process of its own, by their worth, then the
run by services and two cards. Each row is printed when it is measured and added to
``results.jsonl`` in the output folder, so that an interrupted run keeps what it has; all else that
parts print is in ``log.txt``. A part that there is no time for is a line, too. The last minute
and a half are kept for services and cards. ``summary.md`` has the table that is printed at the end,
in which what is asked of a row stands beside it, and of rows that were not measured; it is written
after each part. It exits with 1 if something failed, or packages are missing, and else with 2 if
there was no time for something.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "triton", "jax", "torchrl", "grpcio")
NEEDED = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis")
"""Packages without which no test runs, besides those of the distribution."""
LIMIT_S, DRY_S, TESTS_S, PART_S, KEPT_S, LEAST_S = 570.0, 240.0, 240.0, 150.0, 90.0, 5.0
"""Limits of all, of a dry one, of the tests, and of another part; time kept for services and cards;
least of a part."""
TEST_S = 90.0
"""Limit of one test, whose kernels are compiled within it."""
IMPORTS = (
    "fullrank.wiring.training, fullrank_controller.serving, fullrank_replay, fullrank_learner, "
    "fullrank_collector, pytest_asyncio, hypothesis"
)
"""What is imported before the parts: it needs all packages, and those that they need."""
CARD = (
    *("updates 3 128 256", "qmix 32 60", "played 32 25", "whole 600"),
    *("updates 8 1024 1024", "updates 8 64 1024", "updates 8 1024 512"),
    *("aps 32 1024 4096", "aps 32 1024 512", "goals 9000 -475 -425", "ippo 320"),
    *("aps 8 1024 4096", "aps 64 1024 4096", "worlds 8 200 4096 65536"),
    *("overlap 32 1024 4096", "company 8 1024 512"),
    *("aps 32 1024 1024", "aps 32 1024 2048", "aps 16 1024 4096", "overlap 8 1024 512"),
    *(f"aps {agents} 1024 {batch}" for agents in (8, 16, 64) for batch in (512, 1024, 2048)),
    "company 32 1024 512",
)
"""Parts of ``benchmarks/one_device.py`` by their worth, with their sizes."""
CARD_LAST = ("services 200", "ranks 100 1024 4096")
DRY = (
    *("updates 3 16 32", "qmix 8 6", "played 4 6", "whole 40", "goals 40 -2000 -1000", "ippo 32"),
    *("aps 4 32 64", "worlds 4 8 64", "overlap 4 32 64", "company 4 16 32"),
)
DRY_LAST = ("services 20", "ranks 20 16 32")
ASKED = {
    "updates": {"TorchRL": "at least 4", "JAX": "at least 0.8"},
    "updates 8 64 1024": {"TorchRL": "at least 4", "JAX": "at least 0.5"},
    "updates 8 1024 1024": {"TorchRL": "at least 1.3", "JAX": "at least 0.8"},
    "qmix": {"TorchRL": "at least 1", "Fullrank, units: 8": "at most 1.3"},
    "whole": {"on cuda": "at least 1500 a second"},
    "goals": {"Fullrank to -475": "at most 8 s", "Fullrank to -425": "at most 12 s"},
}
"""What is asked of rows, by part, without or with its sizes, and by player: of ``times``, a
player's time in that of Fullrank, unless said."""
OUTCOMES = ("failed", "no_time", "skipped")
"""Keys of rows without a measurement: an error, no time, and what this host has not."""


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which this checkout is imported, installed or not.

    Services are found by the entry points of the distribution; where it is not installed, a folder
    with its metadata stands for it.
    """
    paths = [ROOT / "src", ROOT, *(ROOT / "papers").glob("[0s]*"), *(ROOT / "services").iterdir()]
    try:
        importlib.metadata.distribution("fullrank")
    except importlib.metadata.PackageNotFoundError:
        paths.append(folder)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        about = folder / "fullrank-0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fullrank\nVersion: 0\n")
        groups = {"console_scripts": project["scripts"], **project["entry-points"]}
        lines = [
            line
            for group, points in groups.items()
            for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()))
        ]
        (about / "entry_points.txt").write_text("\n".join(lines))
    inherited = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, paths), inherited])}


def machine() -> str:
    """Name the card, its driver, the interpreter and the versions of packages, in one line."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        cards = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        cards = "no NVIDIA card"
    found = ["; ".join(cards.split("\n")).strip("; "), f"Python {sys.version.split()[0]}"]
    # Triton compiles a library against Python's headers at its first kernel.
    compiler = os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    found.append(f"{compiler or 'NO C COMPILER'}, {'' if header.exists() else 'NO '}Python.h")
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def lacking() -> list[str]:
    """Return the packages without which nothing runs here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=\[]", line)[0] for line in project["dependencies"]]
    found = {each.name.lower().replace("_", "-") for each in importlib.metadata.distributions()}
    return [name for name in (*names, *NEEDED) if name not in found]


def broken(variables: dict[str, str]) -> str:
    """Return the error of an import without which no part runs; empty if there is none."""
    command = [sys.executable, "-c", f"import {IMPORTS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def tests(*, dry: bool) -> list[str]:
    """Return the command of the tests that need a device; without one they are collected alone.

    Those of machine code need none, but the Triton of this host.
    """
    files = [path for path in (ROOT / "tests").rglob("*.py") if "mark.gpu" in path.read_text()]
    command = ["-m", "pytest", "-v", "-p", "no:cacheprovider", *map(str, sorted(files))]
    command += ["-o", f"timeout={TEST_S:.0f}"]
    if dry:
        return [*command, "-m", "gpu", "--collect-only", "-q"]
    # Most of their time kernels are compiled, each by one core.
    workers = ("-n", "12") if importlib.util.find_spec("xdist") else ()
    return [*command, *workers, "-k", "gpu or compile"]


def lines_of(
    command: list[str], log: Path, variables: dict[str, str], limit_s: float
) -> Iterator[str]:
    """Run a command with all that it starts for so long, and yield its lines as they come.

    What it prints as errors is added to the log.

    Raises:
        subprocess.CalledProcessError: It failed, or was ended by the limit.
    """
    with (
        log.open("a") as errors,
        subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=variables,
            start_new_session=True,
        ) as child,
    ):
        assert child.stdout is not None
        limit = Timer(limit_s, os.killpg, (child.pid, signal.SIGKILL))
        limit.start()
        try:
            yield from map(str.strip, child.stdout)
            child.wait()
        finally:
            limit.cancel()
            if child.poll() is None:  # this program was interrupted
                os.killpg(child.pid, signal.SIGKILL)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)


class Session:
    """The parts that are measured into a folder.

    Args:
        output: The folder.
        limit_s: Time for all of them.
        dry: True for a CPU and small sizes.
    """

    def __init__(self, output: Path, *, limit_s: float, dry: bool) -> None:
        self._output, self._dry, self._rows = output, dry, list[dict[str, object]]()
        self._end_s = time.monotonic() + limit_s
        output.mkdir(parents=True, exist_ok=True)
        self._log = output / "log.txt"

    def row(self, part: str, **row: object) -> None:
        """Print a row and add it to the results."""
        self._rows.append({"part": part, **row})
        with (self._output / "results.jsonl").open("a") as file:
            print(json.dumps(self._rows[-1]), file=file)
        print(part, *(f"{name}={value}" for name, value in row.items()), sep=" | ", flush=True)

    def run(self, part: str, command: list[str], variables: dict[str, str], kept_s: float) -> None:
        """Run a part in the time that is left but for so many seconds."""
        part_s = TESTS_S if part == "tests" else PART_S
        limit_s = min(part_s, self._end_s - time.monotonic() - kept_s)
        if limit_s < LEAST_S:
            self.row(part, no_time=f"{max(0.0, limit_s):.0f} s left")
            return
        began, line = time.monotonic(), ""
        self._tell(f"== {part}")
        try:
            for line in filter(None, lines_of(command, self._log, variables, limit_s)):
                if line.startswith("{"):
                    self.row(part, **json.loads(line))
                    continue
                self._tell(line)
                if line.startswith(("FAILED", "ERROR")):  # pytest names them at its end
                    self.row(part, failed=line[:300])
            if part == "tests":
                self.row(part, player=line)
        except subprocess.CalledProcessError as error:
            if time.monotonic() - began >= limit_s:
                self.row(part, no_time=f"not done in {limit_s:.0f} s: {line}"[:300])
            else:
                last = [line, *self._log.read_text().split(f"== {part}\n")[-1].splitlines()][-1]
                self.row(part, failed=f"exit code {error.returncode}: {last}"[:300])
        self.summary()

    def _tell(self, line: str) -> None:
        with self._log.open("a") as log:
            print(line, file=log)

    def measure(self, parts: tuple[str, ...], variables: dict[str, str], kept_s: float) -> None:
        """Run parts of ``benchmarks/one_device.py``."""
        device = "cpu" if self._dry else "cuda"
        for part in parts:
            command = ["benchmarks/one_device.py", "--device", device, *part.split()]
            self.run(part, command, variables, kept_s)

    def summary(self) -> str:
        """Return the table of all rows, with ratios first, and what came of the parts."""
        columns = ("part", "player", "times", "asked", "ms", "per_s", "aps", "of_peak")
        table = ["| " + " | ".join(columns) + " | also |", "|---" * (len(columns) + 1) + "|"]
        for row in [*self._rows, *self._missing()]:
            asked = _asked_of(str(row["part"])).get(str(row.get("player")))
            own = {"asked": asked} | row if asked else row
            shown = [_shown(own.get(column, "")) for column in columns]
            also = [f"{key}: {_shown(row[key])}" for key in row if key not in columns]
            table.append("| " + " | ".join([*shown, ", ".join(also)]) + " |")
        table += ["", *(f"{what}: {', '.join(self._parts(what)) or 'none'}" for what in OUTCOMES)]
        (self._output / "summary.md").write_text("\n".join(table) + "\n")
        return "\n".join(table) + "\n"

    def _missing(self) -> Iterator[dict[str, object]]:
        """Yield rows of players that parts which were begun have not measured."""
        begun = dict.fromkeys(str(row["part"]) for row in self._rows)
        known = {
            (row["part"], row.get("player")) for row in self._rows if not row.keys() & {*OUTCOMES}
        }
        for part in begun:
            for player in _asked_of(part):
                if (part, player) not in known:
                    yield {"part": part, "player": player, "times": "not measured"}

    def _parts(self, outcome: str) -> list[str]:
        return [*dict.fromkeys(str(row["part"]) for row in self._rows if outcome in row)]

    @property
    def status(self) -> int:
        """1 if a row failed, and else 2 if there was no time for a part."""
        return 1 if self._parts("failed") else 2 if self._parts("no_time") else 0


def _asked_of(part: str) -> dict[str, str]:
    return ASKED.get(part, ASKED.get(part.split()[0], {}))


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Tests and measurements of a CUDA device.")
    parser.add_argument("--dry", action="store_true", help="on the CPU, in small sizes")
    parser.add_argument("--output", type=Path, default=ROOT / "runs/gpu", help="folder of results")
    parser.add_argument("--limit", type=float, help=f"seconds; {LIMIT_S:.0f}, dry {DRY_S:.0f}")
    parser.add_argument("--only", nargs="*", help="parts: tests, or names of one_device.py's")
    chosen = parser.parse_args(arguments)
    limit_s = chosen.limit if chosen.limit is not None else DRY_S if chosen.dry else LIMIT_S
    session = Session(chosen.output, limit_s=limit_s, dry=chosen.dry)
    session.row("environment", player=machine())
    if absent := lacking():
        session.row("environment", failed=f"missing packages: {' '.join(absent)}")
        return session.status

    def wanted(parts: tuple[str, ...]) -> tuple[str, ...]:
        only = chosen.only
        return parts if only is None else tuple(part for part in parts if part.split()[0] in only)

    with tempfile.TemporaryDirectory() as folder:
        variables, kept_s = environment(Path(folder)), min(KEPT_S, limit_s / 4)
        if said := broken(variables):
            session.row("environment", failed=said)
            return session.status
        if wanted(("tests",)):
            session.run("tests", tests(dry=chosen.dry), variables, kept_s)
        session.measure(wanted(DRY if chosen.dry else CARD), variables, kept_s)
        session.measure(wanted(DRY_LAST if chosen.dry else CARD_LAST), variables, 0.0)
    print(session.summary())
    return session.status


if __name__ == "__main__":
    sys.exit(main())
