"""Claim: whatever dies, lies or is cut off, nothing acknowledged is lost and no bit differs.

One table of every promise under faults with what shows it: tests that kill real processes, and the
benchmarks beside this one. Each row runs a program; its last line is what was found.

    python benchmarks/faults.py
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ("-m", "pytest", "-q", "--timeout=300")
ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "kill -9 of the controller at 22 failpoints: at most the running iteration is redone, the "
        "end is byte-identical, nothing else restarts",
        (*PYTEST, "tests/e2e/test_crashes.py"),
    ),
    (
        "kill -9 of replay twenty times while it writes: nothing acknowledged is lost",
        (*PYTEST, "tests/e2e/test_replay_crashes.py"),
    ),
    (
        "a controller followed by another commits nothing more",
        (*PYTEST, "tests/e2e/test_fencing.py", "tests/integration/test_fencing.py"),
    ),
    (
        "learners that die, fall silent, lie, repeat themselves or forge an identity are refused, "
        "or without effect",
        (*PYTEST, "tests/integration/test_faults.py", "tests/integration/test_membership.py"),
    ),
    (
        "who dials and says nothing, or stops half-way, is sent away and holds up nobody",
        (*PYTEST, "tests/integration/test_slow_peers.py"),
    ),
    (
        "connections that are cut, fall silent in one direction or both, or pass a byte a second "
        "heal by themselves: nobody restarts, nothing is committed twice",
        (*PYTEST, "tests/integration/test_partitions.py"),
    ),
    (
        "as many learners as are tolerated may die in every round, and it takes no longer",
        ("benchmarks/dying_learners.py",),
    ),
    (
        "ten runs of real processes that are killed, frozen and cut off end as the undisturbed one",
        ("benchmarks/schedules.py", "--services", "--schedules", "10", "--processes", "1"),
    ),
    ("100 joins and leaves in 500 iterations lose none", ("benchmarks/churn.py",)),
    (
        "a flipped bit is caught or without effect and its learner named, liars are found out, and "
        "nobody is named wrongly",
        ("benchmarks/audit.py",),
    ),
    ("10,000 seeded schedules in virtual time break no promise", ("benchmarks/schedules.py",)),
    ("1,000,000 malformed messages crash, hang and grow nothing", ("benchmarks/fuzz.py",)),
    ("1,000 iterations with 15 learners: nothing grows", ("benchmarks/soak.py",)),
    ("mutual TLS costs little of a round", ("benchmarks/tls.py",)),
    (
        "journal, checksums, digests, audit and mutual TLS together cost 5 % of a round at most",
        ("benchmarks/cost_of_trust.py",),
    ),
)


def main() -> int:
    print("| promise | shown by | found | minutes |")
    print("|---|---|---|---|")
    kept = True
    for promise, words in ROWS:
        started = time.monotonic()
        run = subprocess.run(
            [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        minutes = (time.monotonic() - started) / 60
        kept &= run.returncode == 0
        last = (run.stdout.strip().splitlines() or ["nothing"])[-1]
        found = last if run.returncode == 0 else f"**falls short**: {last}"
        shown = ", ".join(f"`{word}`" for word in words if word.endswith(".py"))
        print(f"| {promise} | {shown} | {found} | {minutes:.1f} |", flush=True)
    return not kept


if __name__ == "__main__":
    sys.exit(main())
