"""Claim: crashes, lies and partitions lose no acknowledged data and change no bit.

One table of every promise under faults with its evidence: tests that kill real processes, and the
benchmarks beside this one. Each part runs a program, whose last line is the finding. All parts take
two and a quarter hours; they can be run one by one, since runs/faults keeps the latest finding of
each. Without a name no part is run.

    python benchmarks/faults.py
    python benchmarks/faults.py crashes churn
    python benchmarks/faults.py all
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "runs" / "faults"
PYTEST = ("-m", "pytest", "-q", "--timeout=300")
INTEGRATION, E2E = "tests/integration", "tests/e2e"
PARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "crashes": (
        "kill -9 of the controller at 22 failpoints: at most the running iteration is repeated, "
        "the end is byte-identical, no other process restarts",
        (*PYTEST, f"{E2E}/test_crashes.py"),
    ),
    "replay": (
        "twenty times kill -9 of replay while it writes: no acknowledged row is lost",
        (*PYTEST, f"{E2E}/test_replay_crashes.py"),
    ),
    "disk": (
        "a full disk loses no row: once there is room, the run continues",
        (*PYTEST, f"{E2E}/test_full_disk.py"),
    ),
    "fencing": (
        "a superseded controller commits nothing more",
        (*PYTEST, f"{E2E}/test_fencing.py", f"{INTEGRATION}/test_fencing.py"),
    ),
    "learners": (
        "learners that die, fall silent, lie, repeat messages or forge an identity are refused or "
        "without effect",
        (*PYTEST, f"{INTEGRATION}/test_faults.py", f"{INTEGRATION}/test_membership.py"),
    ),
    "colluders": (
        "two learners that collude on the same wrong bits outvote an honest one; a second honest "
        "one or the controller exposes them, and the commit is rolled back",
        (*PYTEST, "tests/unit/audit/test_proof.py", f"{INTEGRATION}/test_audits.py"),
    ),
    "silence": (
        "a peer that dials and stays silent, or stops half-way, is dropped and delays no other",
        (*PYTEST, f"{INTEGRATION}/test_slow_peers.py"),
    ),
    "floods": (
        "oversized messages and excess calls are refused in bounded memory; others are served",
        (*PYTEST, f"{E2E}/test_replay_floods.py", f"{INTEGRATION}/test_limits.py"),
    ),
    "partitions": (
        "connections that are cut, silent in one direction or both, or throttled to a byte a "
        "second recover by themselves, and moved services are found: no process restarts, no "
        "iteration is committed twice; lost packets and jumping clocks change no bit",
        (
            *PYTEST,
            f"{INTEGRATION}/test_partitions.py",
            f"{E2E}/test_lossy_network.py",
            f"{E2E}/test_names.py",
            f"{E2E}/test_clocks.py",
        ),
    ),
    "dying": (
        "as many learners as are tolerated may die in every round without making it longer",
        ("benchmarks/dying_learners.py",),
    ),
    "moments": (
        "killed at any of 1,000 random moments, `fullrank train` or its controller leaves no "
        "process after 30 s",
        ("benchmarks/kill_moments.py",),
    ),
    "services": (
        "ten runs of real processes, killed, frozen and cut off, end as the fault-free one",
        ("benchmarks/schedules.py", "--services", "--schedules", "10", "--processes", "1"),
    ),
    "long": (
        "720 faults in one long run of real processes break no promise, and 95 % of its rounds "
        "commit at the first attempt",
        ("benchmarks/chaos_soak.py",),
    ),
    "churn": ("100 joins and leaves in 500 iterations lose none of them", ("benchmarks/churn.py",)),
    "lies": (
        "a flipped bit is caught or harmless and its learner named, lies are exposed, and no "
        "honest learner is named, in 10,000 trials for each code and 16,000 clean rounds",
        ("benchmarks/audit.py",),
    ),
    "schedules": (
        "10,000 seeded fault schedules in virtual time break no promise",
        ("benchmarks/schedules.py",),
    ),
    "malformed": (
        "1,000,000 malformed messages cause no crash, hang or growth",
        ("benchmarks/fuzz.py",),
    ),
    "soak": ("1,000 iterations with 15 learners: no service grows", ("benchmarks/soak.py",)),
    "trust": (
        "journal, checksums, digests, audit and mutual TLS cost at most 5 % of a round",
        ("benchmarks/cost_of_trust.py",),
    ),
}
"""By name: a promise, and the arguments of ``python`` that show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Latest outcome of a part."""

    holds: bool
    """True if the promise held."""
    last: str
    minutes: float
    commit: str


def run(words: Sequence[str]) -> Finding:
    """Run a part's program."""
    started = time.monotonic()
    process = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return Finding(
        holds=process.returncode == 0,
        last=(process.stdout.strip().splitlines() or ["nothing"])[-1],
        minutes=(time.monotonic() - started) / 60,
        commit=_commit(),
    )


def _commit() -> str:
    describe = ["git", "describe", "--always", "--dirty=+"]
    done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or of {', '.join(PARTS)}")
    named = parser.parse_args().names
    names = list(PARTS) if named == ["all"] else named
    if unknown := set(names) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"faults: {name}", file=sys.stderr)
        (KEPT / f"{name}.json").write_text(json.dumps(asdict(run(PARTS[name][1]))))
    return report()


def report() -> int:
    """Print the table of all parts; return 1 unless every promise is known to hold."""
    print("| promise | shown by | finding | minutes | commit |")
    print("|---|---|---|---|---|")
    short = []
    for name, (promise, words) in PARTS.items():
        shown = ", ".join(f"`{word}`" for word in words if word.endswith(".py"))
        kept = KEPT / f"{name}.json"
        if not kept.exists():
            print(f"| {promise} | {shown} | **not run** | | |")
            short.append(name)
            continue
        finding = Finding(**json.loads(kept.read_text()))
        last = finding.last if finding.holds else f"**falls short**: {finding.last}"
        print(f"| {promise} | {shown} | {last} | {finding.minutes:.1f} | {finding.commit} |")
        short += [] if finding.holds else [name]
    print(f"\nnot shown: {', '.join(short)}" if short else "\nevery promise is kept")
    return bool(short)


if __name__ == "__main__":
    sys.exit(main())
