"""Claim: Coded DARL1N's covered rounds do not show the stragglers' delay; uncoded rounds do.

Real services on loopback: 12 agents of Food Collection, 24 learners that make their own samples,
each delayed by 1 s with probability eta in every iteration (``bernoulli``). Compute of 0.2 s a unit
is emulated; networks and batches are small enough for two cores to finish within it. A round is
covered if the rows of the learners in time have rank 12. It should last as long as the heaviest row
that rank 12 needs, taking the lightest rows first; the rest is the price of sending, decoding and
two busy cores. The claim holds if the median covered round is within 1.10 of the same round at the
price paid without stragglers, if every other round outlasts the delay, and if all runs commit equal
digests (the table shows one digest over all iterations). ``uncoded`` covers a round only if none of
its twelve learners is late.

    OMP_NUM_THREADS=1 python benchmarks/coded_darl1n.py --rounds 12
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fullrank.config import RunConfig, load
from fullrank.runs.record import IterationRecord
from fullrank.wiring import code_of, delays_of
from local_services import train

AGENTS, LEARNERS, SEED, UNIT_S, DELAY_S = 12, 24, 0, 0.2, 1.0
CLAIM = 1.10
CODES = {
    "uncoded": ("code.name=uncoded",),
    "ldgm": ("code.name=ldgm",),
    "cyclic, s = 6": ("code.name=cyclic", "code.tolerance=6"),
    "mds": ("code.name=mds",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Times and digest of one run."""

    round_s: NDArray[np.float64]
    computing_s: NDArray[np.float64]
    """Computing time of the learners in time until rank M; inf if they never reach it."""
    digest: str
    """Digest of all committed updates."""

    @property
    def covered_s(self) -> NDArray[np.float64]:
        """Seconds of covered rounds."""
        return self.round_s[np.isfinite(self.computing_s)]

    @property
    def others_s(self) -> NDArray[np.float64]:
        """Seconds of the other rounds."""
        return self.round_s[np.isinf(self.computing_s)]

    @property
    def beyond_s(self) -> float:
        """Median seconds of covered rounds beyond computing."""
        return median(self.covered_s - self.computing_s[np.isfinite(self.computing_s)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--codes", nargs="+", choices=CODES, default=list(CODES))
    arguments = parser.parse_args()
    print(f"M = {AGENTS}, N = {LEARNERS}, {UNIT_S} s a unit (emulated), delay {DELAY_S} s; in s:")
    print("\n| code | eta | covered | median | price | ratio | largest | others, least | digest |")
    print("|---|---|---|---|---|---|---|---|---|")
    digests, short = set(), []
    for code in arguments.codes:
        plain = measure(CODES[code], 0.0, arguments.rounds)
        for eta in (0.0, 0.2, 0.5):
            run = measure(CODES[code], eta, arguments.rounds) if eta else plain
            digests.add(run.digest)
            median_s, least_s = median(run.covered_s), run.others_s.min(initial=np.inf)
            ratio = median_s / (median_s - run.beyond_s + plain.beyond_s)
            times_s = (median_s, run.beyond_s, ratio, run.covered_s.max(initial=-np.inf), least_s)
            figures = " | ".join(
                f"{time_s:.3f}" if np.isfinite(time_s) else "" for time_s in times_s
            )
            covered = f"{len(run.covered_s)} of {arguments.rounds}"
            print(f"| {code} | {eta} | {covered} | {figures} | {run.digest[:12]} |", flush=True)
            if ratio > CLAIM or least_s < DELAY_S:
                short.append(f"{code} at eta = {eta}")
    print(f"\ndigests {'equal' if len(digests) == 1 else 'differ'} in all runs")
    print(f"falls short: {', '.join(short)}" if short else "no covered round shows the delay")
    return int(bool(short) or len(digests) > 1)


def median(times_s: NDArray[np.float64]) -> float:
    """Median, NaN if there is none."""
    return float(np.median(times_s)) if times_s.size else float("nan")


def measure(code: tuple[str, ...], eta: float, rounds: int) -> Measured:
    """Train with real services."""
    settings = [
        f"seed={SEED}",
        f"iterations={rounds}",
        f"learners={LEARNERS}",
        "environment.name=food_collection",
        f"environment.agents={AGENTS}",
        "algorithm.name=darl1n",
        "algorithm.batch_size=16",
        "algorithm.hidden=16",
        "algorithm.evaluate_every=1000000",
        "checkpoint.every=1000000",
        "stragglers.name=bernoulli",
        f"stragglers.probability={eta}",
        f"stragglers.delay_s={DELAY_S}",
        f"compute.emulate_unit_s={UNIT_S}",
        *code,
    ]
    with tempfile.TemporaryDirectory() as scratch:
        records, _ = train(Path(scratch) / "run", settings)
    config = load(overrides=settings).check().config
    matrix = code_of(config, units=AGENTS).matrix
    return Measured(
        round_s=np.array([record.round_s for record in records]),
        computing_s=np.array([computing_s(config, record, matrix) for record in records]),
        digest=sha256("".join(record.update_digest for record in records).encode()).hexdigest(),
    )


def computing_s(config: RunConfig, record: IterationRecord, matrix: NDArray[np.float64]) -> float:
    """Seconds until the learners in time have computed rows of full rank; inf if never."""
    delays = delays_of(config).delays(seed=SEED, iteration=record.iteration, learners=LEARNERS)
    in_time = matrix[[row for learner, row in record.rows.items() if delays[learner] == 0.0]]
    units = np.count_nonzero(in_time, axis=1)
    for most in range(1, AGENTS + 1):
        if np.linalg.matrix_rank(in_time[units <= most]) == AGENTS:
            return most * UNIT_S
    return float("inf")


if __name__ == "__main__":
    sys.exit(main())
