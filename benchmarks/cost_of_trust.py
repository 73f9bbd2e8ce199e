"""Claim: journal, event logs, checksums, digests, audit and mutual TLS add at most 5 % to a round.

The default run (M = 3, N = 4) with services as processes on loopback, in turn with ``--tls``, in
plain text, and stripped: it writes nothing of an iteration but its metrics, every checksum and
digest is a constant, and there is no audit. Both the round and the whole iteration, in which the
journal is written, are compared. The claim is about learners on dedicated machines, emulated by 50
ms a unit, digests included. Beside it stands the harshest case: learners that compute for a few
milliseconds, all on the processors of one machine, so that the work of each service delays the
others.

    OMP_NUM_THREADS=1 python benchmarks/cost_of_trust.py
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

from fullrank.common.updates import DIGEST_BYTES
from fullrank.rpc.certificates import initialise, today
from local_services import train

CLAIM, TURNS = 1.05, 5
SETTINGS = ("collect.warmup=2560", "checkpoint.every=1000000")
MACHINES = {"dedicated": ("compute.emulate_unit_s=0.05",), "shared": ()}
"""Settings that emulate the learners' machines."""
TRUST = ("none", "plain text", "all")
"""Levels of protection that are compared."""


def measure_iterations(times: Path) -> None:
    """In the controller: write the duration of each iteration to a file, seconds."""
    from fullrank_controller.driver import Driver

    iterate = Driver._iterate

    async def timed(self: Driver) -> None:
        started = time.perf_counter()
        await iterate(self)
        with times.open("a") as file:
            file.write(f"{time.perf_counter() - started}\n")

    Driver._iterate = timed  # type: ignore[method-assign]


def strip(times: Path) -> None:
    """Measure iterations, and remove everything that makes a run durable and checked."""
    measure_iterations(times)

    def nothing(*words: object, **named: object) -> None:
        return None

    for target, stand_in in (
        ("fullrank.runs.journal.Journal.append", nothing),
        ("fullrank.runs.event_log.EventLog.append", nothing),
        ("google_crc32c.value", lambda data: 0),
        ("fullrank.rounds.verification.unit_digest", lambda update: bytes(DIGEST_BYTES)),
        ("fullrank.training.worker.unit_digest", lambda update: bytes(DIGEST_BYTES)),
        (
            "fullrank.codes.decoding.single_unit_rows.unit_digest",
            lambda update: bytes(DIGEST_BYTES),
        ),
    ):
        patch(target, stand_in).start()


def measured(rounds: int, machines: Sequence[str], trust: str) -> tuple[float, float]:
    """Median round and median iteration of a run, seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        certificates, times = Path(scratch) / "certificates", Path(scratch) / "times"
        prepare: Callable[[Path], None] = strip if trust == "none" else measure_iterations
        protection = {
            "none": ["audit.every=0"],
            "plain text": [],
            "all": [f"tls.certificates={certificates}"],
        }
        if trust == "all":
            initialise(certificates, run="benchmark", days=1, now=today())
        settings = [f"iterations={rounds}", *SETTINGS, *machines, *protection[trust]]
        records, _ = train(Path(scratch) / "run", settings, prepare=partial(prepare, times))
        iterations_s = list(map(float, times.read_text().split()))
    first = rounds // 10
    return median(record.round_s for record in records[first:]), median(iterations_s[first:])


def compare(name: str, rounds: int) -> float:
    """Print the cost of trust on such machines; return the ratio of rounds, all to none."""
    turns = [[measured(rounds, MACHINES[name], trust) for trust in TRUST] for _ in range(TURNS)]
    measured_ratios: list[float] = []
    for index, part in enumerate(("round", "iteration")):
        times = list(zip(*([run[index] for run in turn] for turn in turns), strict=True))
        bare_s = median(times[0])
        cells = [f"{1e3 * bare_s:.1f}"]
        for trusted in times[1:]:
            ratios = sorted(full / bare for bare, full in zip(times[0], trusted, strict=True))
            spread = f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
            cells.append(f"{1e3 * median(trusted):.1f}: {median(ratios):.3f} {spread}")
            measured_ratios.append(median(ratios))
        print(f"| {name} | {part} | {' | '.join(cells)} |")
    return measured_ratios[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=80)
    rounds = parser.parse_args().rounds
    print("Median milliseconds, and the ratio to the stripped run (least to largest):\n")
    print("| machines | | stripped | all but TLS | all |")
    print("|---|---|---|---|---|")
    dedicated, shared = (compare(name, rounds) for name in MACHINES)
    print(
        f"\nWith journal, checksums, digests, audit and mutual TLS a round takes {dedicated:.3f} "
        f"of one without (claimed {CLAIM} at most), on shared machines {shared:.3f}."
    )
    return int(dedicated > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
