"""Claim: in containers, stragglers within the tolerance cost no time.

M = 8, N = 15, emulated compute of 0.05 s a unit, and a sidecar beside each learner; the sidecars
hold the vectors of k keyed learners for 1 s in every iteration. The median round must be within
1.10 of the run in which the same k learners get no assignment, the delay must not show in the 95th
percentile, and the digests must equal those of the run without stragglers. ``uncoded`` pays the
full delay. Batches of 32 and networks of width 32 keep the real work of fifteen machines on two
cores (compute, encryption, copying) small beside the emulated one. Needs a Docker engine and the
images, made by ``docker compose -f deploy/docker-compose.yml --profile lab build``.

    python benchmarks/straggler_containers.py --rounds 40
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fullrank.runs.record import IterationRecord, read_records
from passing_over import DELAY_S, LEARNERS, SEED

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
DOCKER = os.environ.get("FULLRANK_DOCKER", "docker")
AGENTS, UNIT_S, CLAIM = 8, 0.05, 1.10
WITHIN_S = 600.0
QUIET = "    healthcheck: {disable: true}"
"""Disables probes: thirty of them, each starting a Python, would be stragglers on two cores."""
PATCH = """import sys

if "serve" in sys.orig_argv:  # not the health probes
    import passing_over

    passing_over.pass_over({k})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Parameters of one run."""

    code: str
    tolerance: int
    stragglers: int
    passed_over: bool = False
    """The controller assigns the stragglers no row, and no vector is held."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cases", nargs="+", type=int, default=[1, 2, 7], help="k")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    print(f"M = {AGENTS}, N = {LEARNERS} pairs of containers, {UNIT_S} s a unit (emulated),")
    print(f"held for {DELAY_S} s by the sidecars:\n")
    print("| code | k | median, s | p95, s | median without them, s | ratio | digests |")
    print("|---|---|---|---|---|---|---|")
    failed = False
    for k in arguments.cases:
        slow = run(Case(code="cyclic", tolerance=k, stragglers=k), rounds)
        without = run(Case(code="cyclic", tolerance=k, stragglers=k, passed_over=True), rounds)
        times, base = steady(slow), steady(without)
        ratio = float(np.median(times) / np.median(base))
        p95 = float(np.quantile(times, 0.95))
        equal = digests(slow) == digests(without)
        failed |= ratio > CLAIM or p95 >= DELAY_S or not equal
        print(
            f"| cyclic, s = {k} | {k} | {np.median(times):.3f} | {p95:.3f} | "
            f"{np.median(base):.3f} | {ratio:.2f} (at most {CLAIM:.2f}) | "
            f"{'equal' if equal else 'differ'} |",
            flush=True,
        )
    plain = run(Case(code="uncoded", tolerance=0, stragglers=2), max(10, rounds // 4))
    times = steady(plain)
    failed |= float(np.quantile(times, 0.95)) < DELAY_S
    print(f"| uncoded | 2 | {np.median(times):.3f} | {np.quantile(times, 0.95):.3f} | | | |")
    return int(failed)


def steady(records: list[IterationRecord]) -> np.ndarray:
    """Round times after the first tenth."""
    return np.array([record.round_s for record in records[len(records) // 10 :]])


def digests(records: list[IterationRecord]) -> list[str]:
    """Digests of the committed updates."""
    return [record.update_digest for record in records]


def run(case: Case, rounds: int) -> list[IterationRecord]:
    """Train to the end in containers of a separate project, and remove them."""
    with tempfile.TemporaryDirectory() as scratch:
        files = [DEPLOY / "docker-compose.yml", *overrides(case, rounds, Path(scratch))]
        options = [word for file in files for word in ("-f", str(file))]
        project = ["-p", f"fullrank-bench-{os.getpid()}", *options]
        try:
            compose(*project, "up", "--detach")
            return finished(project, rounds, Path(scratch))
        finally:
            compose(*project, "down", "--volumes", "--timeout", "5")


def overrides(case: Case, rounds: int, scratch: Path) -> list[Path]:
    """Write the Compose files of the pairs and of this run's settings."""
    held = 0 if case.passed_over else case.stragglers
    settings = {
        "SEED": SEED,
        "ITERATIONS": rounds,
        "LEARNERS": LEARNERS,
        "ENVIRONMENT__AGENTS": AGENTS,
        "CODE__NAME": case.code,
        "COMPUTE__EMULATE_UNIT_S": UNIT_S,
        "ALGORITHM__BATCH_SIZE": 32,
        "ALGORITHM__HIDDEN": 32,
        "COLLECT__WARMUP": 2560,
        "CONTROLLER__JOIN_DEADLINE_S": 300,
        **({"CODE__TOLERANCE": case.tolerance} if case.tolerance else {}),
    }
    lines = ["services:", "  controller:", "    environment:"]
    lines += [f'      FULLRANK__{name}: "{value}"' for name, value in settings.items()]
    if case.passed_over:
        shutil.copy(Path(__file__).with_name("passing_over.py"), scratch)
        (scratch / "sitecustomize.py").write_text(PATCH.format(k=case.stragglers))
        lines += ["      PYTHONPATH: /patch", "    volumes:", f"      - {scratch}:/patch:ro"]
    for number in range(LEARNERS):
        sidecar = {"NAME": "fixed_k", "K": held, "DELAY_S": DELAY_S}
        lines += [f"  straggler-{number}:", "    environment:"]
        lines += [f'      FULLRANK__STRAGGLERS__{key}: "{sidecar[key]}"' for key in sidecar]
        lines += [QUIET, f"  learner-{number}:", QUIET]
    pairs, settings_file = scratch / "pairs.yml", scratch / "run.yml"
    pairs.write_text(paired((DEPLOY / "docker-compose.pairs.yml").read_text()))
    settings_file.write_text("\n".join(lines) + "\n")
    scratch.chmod(0o755)
    return [pairs, settings_file]


def paired(text: str) -> str:
    """The override file of pairs, with as many of them as there are learners."""
    base = str(DEPLOY / "docker-compose.yml")
    opening, pair, *_ = (
        text.replace(" &learner", "").replace("docker-compose.yml", base).split("\n\n")
    )
    numbered = (pair.replace("r-0", f"r-{number}") for number in range(LEARNERS))
    return "\n\n".join([opening.replace('"4"', f'"{LEARNERS}"'), *numbered, ""])


def finished(project: list[str], rounds: int, scratch: Path) -> list[IterationRecord]:
    """Wait for the last iteration and return all records.

    The end is read from the log: polling would act as another straggler.
    """
    follow = ["logs", "--follow", "--no-log-prefix", "controller"]
    command = ["timeout", str(WITHIN_S), DOCKER, "compose", *project, *follow]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as log:
        assert log.stdout is not None
        lines = []
        for line in log.stdout:
            lines.append(line)
            if "finished" in line:
                break
        log.terminate()
    copy = scratch / "metrics.jsonl"
    path = "/var/lib/fullrank/run/metrics.jsonl"
    copy.write_text(compose(*project, "exec", "-T", "controller", "cat", path, check=False))
    if len(records := read_records(copy)) != rounds:
        raise SystemExit(f"not finished within {WITHIN_S:.0f} s:\n{''.join(lines)}")
    return records


def compose(*words: str, check: bool = True) -> str:
    """Run ``docker compose words...`` and return its output."""
    environment = os.environ | {"FULLRANK_PORT": "0", "FULLRANK_MONITOR_PORT": "0"}
    process = subprocess.run(
        [DOCKER, "compose", *words], env=environment, capture_output=True, text=True, check=False
    )
    if check and process.returncode:
        raise SystemExit(process.stderr)
    return process.stdout


if __name__ == "__main__":
    sys.exit(main())
