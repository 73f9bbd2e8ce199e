"""Claim: the simulator predicts median round times to within 20 % of the measured ones.

Five configurations with emulated compute, as processes on loopback, and one whose two learners
compute for real: its seconds a unit are measured in the first half of the run, and the prediction
is compared with the second. The simulator is given units, code and stragglers, and a free network.

    python benchmarks/simulator.py --iterations 30 --plot docs/simulator.png
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fullrank.config import RunConfig, load
from fullrank.config.code import code_of
from fullrank.planning.cluster import Cluster
from fullrank.planning.simulation import simulate
from fullrank.runs.record import IterationRecord
from fullrank.wiring.plugins import delays_of
from local_services import train

LARGEST_ERROR = 0.20
SETTLING = 5
"""Rounds omitted at the start, while sockets and caches warm up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A configuration to predict."""

    name: str
    overrides: tuple[str, ...]


def emulated(name: str, unit_s: float, *overrides: str) -> Setting:
    small = ("algorithm.batch_size=64", "collect.warmup=1280", f"compute.emulate_unit_s={unit_s}")
    return Setting(name=name, overrides=(*overrides, *small))


WIDE = ("learners=15", "environment.agents=8")
LATE = ("stragglers.name=fixed_k", "stragglers.delay_s=1.0")
SETTINGS = (
    emulated("cyclic 1, 3 on 4", 0.15, "code.tolerance=1"),
    emulated("uncoded, 2 of 15 late", 0.2, *WIDE, *LATE, "stragglers.k=2", "code.name=uncoded"),
    emulated("cyclic 2, 2 of 15 late", 0.2, *WIDE, *LATE, "stragglers.k=2", "code.tolerance=2"),
    emulated("cyclic 7, 7 of 15 late", 0.1, *WIDE, *LATE, "stragglers.k=7", "code.tolerance=7"),
    emulated("mds, 5 of 15 late", 0.1, *WIDE, *LATE, "stragglers.k=5", "code.name=mds"),
    Setting(
        name="real compute, 2 on 2",
        overrides=(
            "learners=2",
            "environment.agents=2",
            "code.name=uncoded",
            "algorithm.batch_size=16384",
            "algorithm.hidden=256",
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Predicted and measured median seconds of a round."""

    name: str
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_s / self.measured_s - 1.0


def compare(setting: Setting, iterations: int) -> Compared:
    """Run a setting, then predict it."""
    overrides = [*setting.overrides, f"iterations={iterations}", "checkpoint.every=1000"]
    config = load(environ={}, overrides=overrides).check().config
    with tempfile.TemporaryDirectory() as scratch:
        records, _ = train(Path(scratch) / "run", overrides, prepare=nothing)
    held, settled = records[SETTLING:], records[SETTLING : len(records) // 2]
    unit_s = config.compute.emulate_unit_s
    if not unit_s:
        unit_s, held = measured_unit_s(settled, config), records[len(records) // 2 :]
    return Compared(
        name=setting.name,
        predicted_s=predict(config, unit_s=unit_s, iterations=iterations),
        measured_s=float(np.median([record.round_s for record in held])),
    )


def nothing() -> None:
    """Leave the services as they are."""


def measured_unit_s(records: Sequence[IterationRecord], config: RunConfig) -> float:
    load_of = code_of(config, units=config.environment.agents).load
    return float(
        np.median(
            [
                seconds / load_of[record.rows[learner]]
                for record in records
                for learner, seconds in record.compute_s.items()
            ]
        )
    )


def predict(config: RunConfig, *, unit_s: float, iterations: int) -> float:
    """Median round time of the simulator, seconds."""
    rounds = simulate(
        Cluster(unit_s=unit_s),
        code_of(config, units=config.environment.agents),
        delays_of(config),
        iterations=iterations,
        seed=config.seed,
    )
    return float(np.median(rounds.round_s[SETTLING:]))


def draw(compared: Sequence[Compared]) -> Figure:
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = figure.subplots()
    least, most = 0.5 * min(c.measured_s for c in compared), 2 * max(c.measured_s for c in compared)
    line = np.array([least, most])
    axes.fill_between(
        line, line * (1 - LARGEST_ERROR), line * (1 + LARGEST_ERROR), color="grey", alpha=0.2
    )
    axes.plot(line, line, color="grey", linewidth=1)
    for case in compared:
        axes.plot(case.measured_s, case.predicted_s, "o", label=case.name)
    axes.set(xscale="log", yscale="log", xlim=(least, most), ylim=(least, most))
    axes.set(xlabel="measured median round, seconds", ylabel="predicted, seconds")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    print("| configuration | predicted, s | measured, s | error |")
    print("|---|---|---|---|")
    compared = []
    for setting in SETTINGS:
        compared.append(case := compare(setting, arguments.iterations))
        print(
            f"| {case.name} | {case.predicted_s:.3f} | {case.measured_s:.3f} | {case.error:+.0%} |",
            flush=True,
        )
    if arguments.plot:
        draw(compared).savefig(arguments.plot, dpi=150)
    failed = [case.name for case in compared if abs(case.error) > LARGEST_ERROR]
    print(f"\nnot within {LARGEST_ERROR:.0%}: {failed}" if failed else "\nall claims hold")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
