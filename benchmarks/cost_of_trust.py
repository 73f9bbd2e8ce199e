"""Trust costs little: journal, histories, checksums, digests, audit and mutual TLS add 5 % at most.

The default run (M = 3, N = 4) with services in processes on loopback, as it is with ``--tls``, in
plain text, and with all of it taken out: nothing written of an iteration but its metrics, every
checksum and digest a constant, no audit. In turn; both the round and the whole iteration, in which
the journal is written, are compared. The claim is on learners with machines of their own, for which
50 ms a unit stand, digests included. Beside it is the harshest case: learners that compute for a
few milliseconds, all on the processors of one machine, so that whatever any service does for trust
is waited for.

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
MACHINES = {"of their own": ("compute.emulate_unit_s=0.05",), "shared": ()}
"""What learners compute on."""
TRUST = ("none", "plain text", "all")
"""How much of it a run has."""


def measure_iterations(times: Path) -> None:
    """In the controller: write down how long each iteration takes."""
    from fullrank_controller.driver import Driver

    iterate = Driver._iterate

    async def timed(self: Driver, current: object) -> None:
        started = time.perf_counter()
        await iterate(self, current)  # type: ignore[arg-type]
        with times.open("a") as file:
            file.write(f"{time.perf_counter() - started}\n")

    Driver._iterate = timed  # type: ignore[method-assign]


def believe(times: Path) -> None:
    """The same, and take out what makes a run durable and checked."""
    measure_iterations(times)

    def nothing(*words: object, **named: object) -> None:
        return None

    for target, stand_in in (
        ("fullrank.runs.journal.Journal.append", nothing),
        ("fullrank.runs.event_log.EventLog.note", nothing),
        ("google_crc32c.value", lambda data: 0),
        ("fullrank.rounds.round.unit_digest", lambda update: bytes(DIGEST_BYTES)),
        ("fullrank_learner.worker.unit_digest", lambda update: bytes(DIGEST_BYTES)),
    ):
        patch(target, stand_in).start()


def measured(rounds: int, machines: Sequence[str], trust: str) -> tuple[float, float]:
    """Median round and median iteration of a run, seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        certificates, times = Path(scratch) / "certificates", Path(scratch) / "times"
        prepare: Callable[[Path], None] = believe if trust == "none" else measure_iterations
        own = {
            "none": ["audit.every=0"],
            "plain text": [],
            "all": [f"tls.certificates={certificates}"],
        }
        if trust == "all":
            initialise(certificates, run="benchmark", days=1, now=today())
        settings = [f"iterations={rounds}", *SETTINGS, *machines, *own[trust]]
        records, _ = train(Path(scratch) / "run", settings, prepare=partial(prepare, times))
        iterations_s = list(map(float, times.read_text().split()))
    first = rounds // 10
    return median(each.round_s for each in records[first:]), median(iterations_s[first:])


def compare(name: str, rounds: int) -> float:
    """Print what trust costs learners on such machines; of a round, all over none."""
    turns = [[measured(rounds, MACHINES[name], trust) for trust in TRUST] for _ in range(TURNS)]
    found: list[float] = []
    for index, part in enumerate(("round", "iteration")):
        times = list(zip(*([run[index] for run in turn] for turn in turns), strict=True))
        bare_s = median(times[0])
        cells = [f"{1e3 * bare_s:.1f}"]
        for trusted in times[1:]:
            ratios = sorted(each / bare for bare, each in zip(times[0], trusted, strict=True))
            spread = f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
            cells.append(f"{1e3 * median(trusted):.1f}: {median(ratios):.3f} {spread}")
            found.append(median(ratios))
        print(f"| {name} | {part} | {' | '.join(cells)} |")
    return found[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=80)
    rounds = parser.parse_args().rounds
    print("Milliseconds, median, and the ratio to nothing of it, least to largest:\n")
    print("| machines | | nothing of it | all but TLS | all |")
    print("|---|---|---|---|---|")
    own, shared = (compare(name, rounds) for name in MACHINES)
    print(
        f"\nWith journal, checksums, digests, audit and mutual TLS a round takes {own:.3f} of one "
        f"without (claimed {CLAIM} at most), on shared machines {shared:.3f}."
    )
    return int(own > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
