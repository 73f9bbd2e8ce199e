"""Test and measure the CUDA device of this host, by one command and within a time limit.

    make gpu                                      # ten minutes at most, into runs/gpu
    make gpu ARGS="--dry --output /tmp/gpu"       # all of it on the CPU, in small sizes
    make gpu ARGS="--only tests"                  # one part; --without tests: all others
    make gpu PYTHON=/usr/bin/python3              # without .venv, by an interpreter that has torch

It needs no network. In order it says what this host has and which peers it lacks, runs the tests
marked ``gpu``, takes the measurements of ``benchmarks/one_device.py`` by their worth, then the run
by services and two cards. Parts of one kind that follow each other share a process, so that torch
is imported and kernels are compiled once; after a part that fails or is out of time another one
takes the rest. Each row is printed when it is measured and added to ``results.jsonl`` in the output
folder, so that an interrupted run keeps what it has; all else that parts print is in ``log.txt``.
The row that ends a part has its seconds, and a part that there is no time for is a line, too. The
last minute and a half are kept for services and cards. ``summary.md`` has the table that is printed
at the end, in which what is asked of a row stands beside it, and of rows that were not measured; it
is written after each process. It exits with 1 if something failed, or packages are missing, and
else with 2 if there was no time for something.
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
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from threading import Event, Timer

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "triton", "jax", "torchrl", "tensordict", "grpcio")
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
PEERS = {"TorchRL": "tensordict, torchrl", "JAX": "jax"}
"""What is imported for the rows of each peer."""
ENDS = '"took_s"'
"""Key of the row that ends a part."""
PARTS = tomllib.loads((ROOT / "benchmarks/one_device.toml").read_text())
"""Parts of ``benchmarks/one_device.py`` on a card and dry, and what is asked of their rows."""
HELP = "parts, by their word or with their sizes: tests, 'updates 3 128 256'; all by default"
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


def broken(imports: str, variables: dict[str, str]) -> str:
    """Return the error of an import; empty if there is none."""
    command = [sys.executable, "-c", f"import {imports}"]
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
    command: list[str], log: Path, variables: dict[str, str], limit_s: Callable[[], float]
) -> Iterator[str]:
    """Run a command with all that it starts, and yield its lines as they come.

    What it prints as errors is added to the log.

    Args:
        command: Arguments of the interpreter.
        log: File of errors.
        variables: Of the environment.
        limit_s: Returns the time that is left, from now, to a part that begins.

    Raises:
        subprocess.TimeoutExpired: It was ended by the limit of a part.
        subprocess.CalledProcessError: It failed.
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
        expired = Event()

        def end() -> None:
            expired.set()
            os.killpg(child.pid, signal.SIGKILL)

        def begun() -> Timer:
            limit = Timer(limit_s(), end)
            limit.start()
            return limit

        limit = begun()
        try:
            for line in map(str.strip, child.stdout):
                if ENDS in line:
                    limit.cancel()
                    limit = begun()
                yield line
            child.wait()
        finally:
            limit.cancel()
            if child.poll() is None:  # this program was interrupted
                os.killpg(child.pid, signal.SIGKILL)
    if expired.is_set():
        raise subprocess.TimeoutExpired(command, 0.0)
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

    def run(
        self,
        parts: Sequence[str],
        command: list[str],
        variables: dict[str, str],
        kept_s: float,
        *,
        part_s: float = PART_S,
    ) -> int:
        """Run the first of some parts, and those after it, until one has no end of its own.

        Args:
            parts: They, in the order in which the command takes them.
            command: Takes all of them; what it does not end with a row is one part.
            variables: Of the environment.
            kept_s: Time that is left to later parts.
            part_s: Longest time of a part.

        Returns:
            The number of parts of which all is said.
        """

        def limit_s() -> float:
            return min(part_s, self._end_s - time.monotonic() - kept_s)

        if (left_s := limit_s()) < LEAST_S:
            for part in parts:
                self.row(part, no_time=f"{max(0.0, left_s):.0f} s left")
            return len(parts)
        done, began, line = 0, time.monotonic(), ""
        self._tell(f"== {parts[0]}")
        logged = len(self._log.read_text())
        try:
            for line in filter(None, lines_of(command, self._log, variables, limit_s)):
                if not line.startswith("{"):
                    self._tell(line)
                    if line.startswith(("FAILED", "ERROR")):  # pytest names them at its end
                        self.row(parts[0], failed=line[:300])
                    continue
                self.row(**json.loads(line))
                if ENDS in line:
                    done, began = done + 1, time.monotonic()
                    self._tell(f"== {parts[done]}" if done < len(parts) else "==")
            if not done:
                self.row(parts[0], player=line)
        except subprocess.TimeoutExpired:
            if done < len(parts):
                took_s = time.monotonic() - began
                self.row(parts[done], no_time=f"not done in {took_s:.0f} s: {line}"[:300])
        except subprocess.CalledProcessError as error:
            if done < len(parts):  # rows say what does not hold
                said = [
                    each for each in self._log.read_text()[logged:].splitlines() if each[:2] != "=="
                ]
                failure = f"exit code {error.returncode}: {[line, *said][-1]}"[:300]
                self.row(parts[done], failed=failure)
        self.summary()
        return done + 1

    def _tell(self, line: str) -> None:
        with self._log.open("a") as log:
            print(line, file=log)

    def measure(self, parts: Sequence[str], variables: dict[str, str], kept_s: float) -> None:
        """Run parts of ``benchmarks/one_device.py``, neighbours of one kind by one process."""
        device = "cpu" if self._dry else "cuda"
        for _, alike in groupby(parts, key=_kind):
            left = [*alike]
            while left:
                command = ["benchmarks/one_device.py", "--device", device, *left]
                left = left[self.run(left, command, variables, kept_s) :]

    def summary(self) -> str:
        """Return the table of all rows, with ratios first, and what came of the parts."""
        columns = ("part", "player", "times", "asked", "ms", "per_s", "aps", "of_peak")
        table = ["| " + " | ".join(columns) + " | also |", "|---" * (len(columns) + 1) + "|"]
        for row in [*self._rows, *self._missing()]:
            asked = PARTS["asked"].get(str(row["part"]), {}).get(str(row.get("player")))
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
            for player in PARTS["asked"].get(part, {}):
                if (part, player) not in known:
                    yield {"part": part, "player": player, "times": "not measured"}

    def _parts(self, outcome: str) -> list[str]:
        return [*dict.fromkeys(str(row["part"]) for row in self._rows if outcome in row)]

    @property
    def status(self) -> int:
        """1 if a row failed, and else 2 if there was no time for a part."""
        return 1 if self._parts("failed") else 2 if self._parts("no_time") else 0


def _kind(part: str) -> str:
    return part.split()[0]


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Tests and measurements of a CUDA device.")
    parser.add_argument("--dry", action="store_true", help="on the CPU, in small sizes")
    parser.add_argument("--output", type=Path, default=ROOT / "runs/gpu", help="folder of results")
    parser.add_argument("--limit", type=float, help=f"seconds; {LIMIT_S:.0f}, dry {DRY_S:.0f}")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--only", nargs="+", metavar="PART", help=HELP)
    choice.add_argument("--without", nargs="+", metavar="PART", help="all parts but these")
    chosen = parser.parse_args(arguments)
    first, last = PARTS["dry" if chosen.dry else "card"].values()
    known = {word for part in ("tests", *first, *last) for word in (part, _kind(part))}
    for word in chosen.only or chosen.without or ():
        if word not in known:
            parser.error(f"{word!r} is no part: use {', '.join(sorted(known))}")

    def wanted(parts: Sequence[str]) -> list[str]:
        if chosen.only:
            return [part for part in parts if {part, _kind(part)} & {*chosen.only}]
        return [part for part in parts if not {part, _kind(part)} & {*(chosen.without or ())}]

    limit_s = chosen.limit if chosen.limit is not None else DRY_S if chosen.dry else LIMIT_S
    session = Session(chosen.output, limit_s=limit_s, dry=chosen.dry)
    session.row("environment", player=machine())
    if absent := lacking():
        session.row("environment", failed=f"missing packages: {' '.join(absent)}")
        return session.status
    with tempfile.TemporaryDirectory() as folder:
        variables = environment(Path(folder))
        if said := broken(IMPORTS, variables):
            session.row("environment", failed=said)
            return session.status
        for peer, imports in PEERS.items():
            if said := broken(imports, variables):
                session.row("environment", player=peer, skipped=f"no rows of it: {said}")
        kept_s = min(KEPT_S, limit_s / 4) if wanted(last) else 0.0
        if wanted(["tests"]):
            part_s = TESTS_S if wanted((*first, *last)) else limit_s
            session.run(["tests"], tests(dry=chosen.dry), variables, kept_s, part_s=part_s)
        session.measure(wanted(first), variables, kept_s)
        session.measure(wanted(last), variables, 0.0)
    print(session.summary())
    return session.status


if __name__ == "__main__":
    sys.exit(main())
