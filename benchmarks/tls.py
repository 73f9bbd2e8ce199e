"""Little for certificates: mutual TLS adds at most 5 % to the round of the default run.

The default run (M = 3, N = 4) with services in processes on loopback, in plain text and under
mutual TLS, in turn; then a round of nothing but bytes (M = N = 8, updates that cost nothing), where
encryption cannot hide behind computing: that one is shown, not claimed.

    OMP_NUM_THREADS=1 python benchmarks/tls.py --rounds 200
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from fullrank.rpc.certificates import initialise, today
from local_services import nothing, train
from round_overhead import BYTES_ALONE, prepare

CLAIM, REPEATS = 1.05, 5
DEFAULT = ("collect.warmup=2560", "checkpoint.every=1000000")


def round_s(
    rounds: int, settings: Sequence[str], prepare_: Callable[[], None], *, certified: bool
) -> float:
    """Median round of a run, seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "certificates"
        tls = [f"tls.certificates={folder}"] if certified else []
        if certified:
            initialise(folder, run="benchmark", days=1, now=today())
        own = [f"iterations={rounds}", *settings, *tls]
        records, _ = train(Path(scratch) / "run", own, prepare=prepare_)
    return median(record.round_s for record in records[rounds // 10 :])


def compare(
    rounds: int, settings: Sequence[str], prepare_: Callable[[], None] = nothing
) -> list[list[float]]:
    """Median rounds in plain text and under TLS, a pair for each turn."""
    return [
        [round_s(rounds, settings, prepare_, certified=certified) for certified in (False, True)]
        for _ in range(REPEATS)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    print("| round | plain text, ms | mutual TLS, ms | ratio, least to largest |")
    print("|---|---|---|---|")
    ratios = []
    for name, turns in (
        ("default run", compare(rounds, DEFAULT)),
        ("nothing but bytes", compare(rounds, BYTES_ALONE, prepare)),
    ):
        plain, tls = (median(each) for each in zip(*turns, strict=True))
        each = sorted(secured / open_ for open_, secured in turns)
        ratios.append(median(each))
        spread = f"{median(each):.3f} ({each[0]:.3f} to {each[-1]:.3f})"
        print(f"| {name} | {1e3 * plain:.1f} | {1e3 * tls:.1f} | {spread} |")
    print(f"\nClaimed for the default run: {CLAIM} at most.")
    return int(ratios[0] > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
