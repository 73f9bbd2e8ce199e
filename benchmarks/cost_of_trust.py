"""Claim: journal, checksums, digests, audit and mutual TLS add at most 5 % to a round, guards 25 %.

The default run (M = 3, N = 4) with services as processes on loopback, in turn with each setting.
*Stripped* runs write nothing of an iteration but its metrics, every checksum and digest is a
constant, and there is no audit. The claim of 5 % is about rounds of learners on dedicated machines,
emulated by 50 ms a unit, digests included. Learners on shared machines compute for a few
milliseconds, all on the processors of this one, so that the work of each service delays the others:
there each guard against learners that lie, and a store in another directory, make an iteration
longer by at most a quarter. Two liars need a third holder of each unit (``code.tolerance = 2``),
whose own cost stands beside.

    OMP_NUM_THREADS=1 python benchmarks/cost_of_trust.py
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import Mock, patch

from fullrank.host.certificates import initialise, today
from local_services import train

CLAIM, GUARD_CLAIM = 1.05, 1.25
SETTINGS = ("collect.warmup=2560", "checkpoint.every=1000")


def measure_iterations(times: Path) -> None:
    """In the controller: write the duration of each iteration to a file, seconds."""
    from fullrank.run.orders import Apply
    from fullrank_controller.driver import Driver

    apply = Driver._apply
    applied_at = time.perf_counter()

    async def timed(self: Driver, order: Apply) -> None:
        nonlocal applied_at
        await apply(self, order)
        before, applied_at = applied_at, time.perf_counter()
        with times.open("a") as file:
            file.write(f"{applied_at - before}\n")

    Driver._apply = timed  # type: ignore[method-assign]


def strip(times: Path) -> None:
    """Measure iterations, and remove everything that makes a run durable and checked."""
    measure_iterations(times)

    def nothing(*words: object, **named: object) -> None:
        return None

    for target, stand_in in (
        ("fullrank.runs.journal.Journal.append", nothing),
        ("fullrank.runs.events.EventLog.append", nothing),
        ("google_crc32c.value", lambda data: 0),
        (
            "fullrank.common.updates.blake3",
            lambda data: Mock(digest=bytes, hexdigest=lambda size: bytes(size).hex()),
        ),
    ):
        patch(target, stand_in).start()


@dataclass(frozen=True, slots=True)
class Variant:
    """A run, and the name of the run that it is compared with."""

    base: str
    settings: tuple[str, ...] = ()
    prepare: Callable[[Path], None] = measure_iterations


DEDICATED = "compute.emulate_unit_s=0.05"
TLS, STORE = "tls.certificates=SCRATCH/certificates", "store.url=SCRATCH/store"
THRICE = "code.tolerance=2"
TRUST = {
    "dedicated, stripped": Variant("dedicated, stripped", (DEDICATED, "audit.every=0"), strip),
    "dedicated": Variant("dedicated, stripped", (DEDICATED,)),
    "dedicated, TLS": Variant("dedicated, stripped", (DEDICATED, TLS)),
    "shared, stripped": Variant("shared, stripped", ("audit.every=0",), strip),
    "shared": Variant("shared, stripped"),
    "shared, TLS": Variant("shared, stripped", (TLS,)),
    THRICE: Variant("shared", (THRICE,)),
}
GUARDS = {
    "audit.every=1": Variant("shared", ("audit.every=1",)),
    "audit.byzantine=1": Variant("shared", ("audit.byzantine=1",)),
    "audit.spot=0.1": Variant("shared", ("audit.spot=0.1",)),
    "store.url": Variant("shared", (STORE, "checkpoint.every=100")),
    "audit.byzantine=2": Variant(THRICE, (THRICE, "audit.byzantine=2")),
}


def measured(rounds: int, variant: Variant) -> tuple[float, float]:
    """Median round and median iteration of a run, seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        times = Path(scratch) / "times"
        initialise(Path(scratch) / "certificates", run="benchmark", days=1, now=today())
        settings = [each.replace("SCRATCH", scratch) for each in variant.settings]
        records, _ = train(
            Path(scratch) / "run",
            [f"iterations={rounds}", *SETTINGS, *settings],
            prepare=partial(variant.prepare, times),
        )
        iterations_s = list(map(float, times.read_text().split()))
    first = rounds // 10
    return median(record.round_s for record in records[first:]), median(iterations_s[first:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--turns", type=int, default=5)
    chosen = parser.parse_args()
    variants = TRUST | GUARDS
    turns = [
        {name: measured(chosen.rounds, variant) for name, variant in variants.items()}
        for _ in range(chosen.turns)
    ]
    print("Median milliseconds, and the ratio to another run (least to largest):\n")
    print(
        "| setting | compared with | round | ratio | iteration | ratio |\n|---|---|---|---|---|---|"
    )
    medians = {}
    for name, variant in variants.items():
        cells = []
        for part in (0, 1):
            ratios = sorted(turn[name][part] / turn[variant.base][part] for turn in turns)
            medians[name, part] = median(ratios)
            cells.append(f"{1e3 * median(turn[name][part] for turn in turns):.1f}")
            cells.append(f"{median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
        print(f"| {name} | {variant.base} | {' | '.join(cells)} |")
    trusted = medians["dedicated, TLS", 0]
    dearest = max(medians[name, 1] for name in GUARDS)
    print(
        f"\nTrust makes a round {trusted:.3f} times as long (claimed {CLAIM} at most), the dearest "
        f"guard an iteration {dearest:.3f} times (claimed {GUARD_CLAIM} at most)."
    )
    return int(trusted > CLAIM or dearest > GUARD_CLAIM)


if __name__ == "__main__":
    sys.exit(main())
