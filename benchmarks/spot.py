"""Claim: on spot machines, a return costs less than by restart from checkpoints, with equal bits.

Machines come and go as Bamboo recorded twelve spot machines for 18.5 hours, and as torchft, ReCoVer
and Decoupled DiLoCo describe the failures that they survive. In virtual time the controller of the
services trains with no code and `controller.undecodable=hedge`; machines go without notice, and
with an open connection. *Goodput* is the number of iterations committed a machine-second, over that
of the same run on machines that stay; a machine that is away is not paid for.

It is compared with synchronous data-parallel training that restarts from checkpoints, under the
same changes of machines. The comparison favours it: work is divided evenly to any fraction, a loss
is noticed at once, checkpoints are written in 1 s at the best interval by Daly's formula for losses
known beforehand, and all compute again 20 s after a change, which is what a learner of ours needs
from its start on two busy cores. Where that takes 60 or 120 s is shown beside it.

The claim holds if in each of the processes the goodput is higher than that of restarts, every
committed update of every run has the bits of the undisturbed one, and the recorded trace costs
less. Costs are at the prices of docs/deploy/kubernetes.md, with a machine on demand for controller
and replay, which restarts do not pay. With equal bits, every return is reached in the same
iteration, so that the costs of a return are as those of an iteration.

The same trace, for four learners that are processes of this host, ends with the same bits; its
hours are told by iterations, and no time is claimed of it (`--services`, alone, and with
`--containers` by those of Compose, whose images have been built).

    PYTHONPATH=. OMP_NUM_THREADS=1 python benchmarks/spot.py --plot docs/spot.png
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from tests.faultlab.capacity import Capacity, Restarts, calm, failing, recorded
from tests.faultlab.simulation.fleet import Played, Work, play, undisturbed

from fullrank.common.errors import FullrankError
from fullrank.local import LocalRun
from spot_places import Containers, Host, Place

TRACE = Path(__file__).parent / "traces/bamboo_g4dn_us_east_1c.csv"
CHECKPOINT_S = 1.0
RESTARTS_S = (20.0, 60.0, 120.0)
"""Times of a restart; the first is the claim's, and that of a learner's start."""
UNITS_EACH = 5
"""Units of a machine in a calm iteration: so many parts can be given to others."""
CALM_ROUNDS = 40
UNIT_S = 0.2
"""Emulated time of a unit in processes and containers."""
SPOT, ON_DEMAND = 0.10, 0.25
"""US dollars an hour of an m7i.xlarge, from the cost table of docs/deploy/kubernetes.md (list
prices of 2025, European regions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Machines that come and go, as others publish it."""

    name: str
    published: str
    """Their goodput, or gain over restarts."""
    make: Callable[[], Capacity]
    round_s: float
    """A calm iteration."""
    start_s: float = 0.0
    """From a machine's coming until its learner dials; 0 where the time away includes it."""


PROCESSES = (
    Process(
        name="Bamboo, recorded",
        published="3.7 times the throughput of checkpoints",
        make=lambda: recorded(TRACE),
        round_s=20.0,
        start_s=RESTARTS_S[0],
    ),
    Process(
        name="torchft, every 60 s",
        published="81.2 %",
        # 29.6 of 30 groups took part: each was away for 0.4 of 60 s.
        make=lambda: failing(30, gap=lambda draws: 60.0, away_s=24.0, end_s=5400.0),
        round_s=10.9,
    ),
    Process(
        name="torchft, every 15 s",
        published="13.4 %",
        # 18.9 of 30 groups took part: each was away for 11.1 of 15 s.
        make=lambda: failing(
            30, gap=lambda draws: draws.uniform(0.0, 30.0), away_s=166.0, end_s=3600.0
        ),
        round_s=10.9,
    ),
    Process(
        name="ReCoVer, half of all lost",
        published="2.23 times the throughput of checkpoints",
        # 256 of 512 within 234 GPU-hours; here 8 of 16, which do not return.
        make=lambda: failing(16, gap=lambda draws: 250.0, away_s=float("inf"), end_s=2200.0),
        round_s=10.0,
    ),
    Process(
        name="Decoupled DiLoCo, 8 learners",
        published="88 % (elastic 58 %, data-parallel 27 %)",
        # 2.4 million chips that each fail once a year; away as long as 88 % implies.
        make=lambda: failing(
            8, gap=lambda draws: draws.exponential(105.0 / 8), away_s=14.3, end_s=3600.0
        ),
        round_s=10.0,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A process, and what was committed under it."""

    process: Process
    capacity: Capacity
    played: Played
    calm_s: float
    """Seconds of a calm iteration, simulated."""
    equal: bool
    """Every update has the bits of the undisturbed run."""

    @property
    def goodput(self) -> float:
        """Iterations a machine-second over those of calm."""
        each = len(self.played.digests) / self.capacity.machine_s
        return each * self.calm_s * self.capacity.machines

    @property
    def pace(self) -> float:
        """Iterations a second over those of all machines in calm."""
        return len(self.played.digests) * self.calm_s / self.capacity.end_s

    def restarts(self, restart_s: float) -> float:
        """Goodput of restarts."""
        baseline = Restarts(checkpoint_s=CHECKPOINT_S, restart_s=restart_s)
        return baseline.work_s(self.capacity) / self.capacity.machine_s

    @property
    def holds(self) -> bool:
        """Whether the claim does."""
        return self.equal and self.goodput > self.restarts(RESTARTS_S[0])


def simulated(process: Process, *, share: float = 1.0) -> Outcome:
    """Simulate the first ``share`` of a process."""
    whole = process.make()
    capacity = Capacity(
        machines=whole.machines,
        changes=tuple(each for each in whole.changes if each.at_s < share * whole.end_s),
        end_s=share * whole.end_s,
    )
    machines = capacity.machines
    work = Work(
        units=UNITS_EACH * machines, unit_s=process.round_s / UNITS_EACH, start_s=process.start_s
    )
    rounds = play(calm(machines, CALM_ROUNDS * process.round_s), work).committed_s
    played = play(capacity, work)
    reference = undisturbed(work, machines, max(len(played.digests), 1))
    return Outcome(
        process=process,
        capacity=capacity,
        played=played,
        calm_s=float(np.median(np.diff(rounds))),
        equal=bool(played.digests) and played.digests == reference,
    )


def show(outcome: Outcome) -> None:
    """Print a row."""
    restarts = [f"{outcome.restarts(restart_s):.1%}" for restart_s in RESTARTS_S]
    print(
        f"| {outcome.process.name} | {outcome.capacity.machines} | {outcome.capacity.losses} | "
        f"{len(outcome.played.digests)} | {outcome.process.published} | {outcome.pace:.1%} | "
        f"**{outcome.goodput:.1%}** | {' | '.join(restarts)} | "
        f"{'equal' if outcome.equal else 'OTHER'} |",
        flush=True,
    )


def show_costs(outcome: Outcome) -> bool:
    """Print dollars for 1,000 iterations of the recorded trace; return whether ours are fewer."""
    hours = outcome.capacity.machine_s / 3600
    spot = hours * SPOT + outcome.capacity.end_s / 3600 * ON_DEMAND
    calm_h = 1000 * outcome.calm_s / 3600
    ours = 1000 * spot / len(outcome.played.digests)
    print("\n| 1,000 iterations on the recorded machines | US dollars | of ours |\n|---|---|---|")
    rows = {"Fullrank, spot, and one machine on demand": ours}
    for restart_s in RESTARTS_S:
        done = outcome.restarts(restart_s) * outcome.capacity.machine_s
        iterations = done / (outcome.calm_s * outcome.capacity.machines)
        label = f"restarts within {restart_s:.0f} s, spot"
        rows[label] = 1000 * hours * SPOT / iterations
    rows["twelve machines on demand, calm, nothing else"] = (
        calm_h * outcome.capacity.machines * ON_DEMAND
    )
    for label, dollars in rows.items():
        print(f"| {label} | {dollars:.2f} | {dollars / ours:.2f} |")
    learners = 1000 * hours * SPOT / len(outcome.played.digests)
    share = outcome.capacity.machine_s / outcome.capacity.end_s / outcome.capacity.machines
    even = [
        ON_DEMAND / SPOT / share / (outcome.goodput / outcome.restarts(each) - 1.0)
        for each in RESTARTS_S
    ]
    print(
        f"\nThe learners alone cost {learners:.2f}. With as many losses an hour, the machine on "
        "demand is paid by what it saves from "
        + ", ".join(f"{n:.0f}" for n in even)
        + " machines on, beside restarts within "
        + ", ".join(f"{each:.0f}" for each in RESTARTS_S)
        + " s."
    )
    return ours < rows[f"restarts within {RESTARTS_S[0]:.0f} s, spot"]


def draw(outcome: Outcome) -> Figure:
    """Machines of the recorded trace above, iterations by both ways below."""
    capacity, calm_s = outcome.capacity, outcome.calm_s
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=(1, 2))
    spans = list(capacity.counts())
    above.stairs([n for _, _, n in spans], [0.0, *(end / 3600 for _, end, _ in spans)], fill=True)
    above.set(ylabel="machines", ylim=(0, capacity.machines + 0.5))
    hours = np.array(outcome.played.committed_s) / 3600
    below.plot(hours, np.arange(1, len(hours) + 1), label="Fullrank, hedged")
    times = np.linspace(0.0, capacity.end_s, 400)
    for restart_s, style in zip(RESTARTS_S, ("-", "--", ":"), strict=True):
        baseline = Restarts(
            checkpoint_s=CHECKPOINT_S,
            restart_s=restart_s,
            every_s=Restarts(checkpoint_s=CHECKPOINT_S, restart_s=restart_s).interval_s(capacity),
        )
        done = [baseline.work_s(until(capacity, at)) / calm_s / capacity.machines for at in times]
        label = f"restart from checkpoints within {restart_s:.0f} s"
        below.plot(times / 3600, done, style, color="tab:red", linewidth=1, label=label)
    below.set(xlabel="hours of the recorded trace", ylabel="iterations", xlim=(0, None))
    below.set_ylim(0, None)
    below.legend(frameon=False)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def until(capacity: Capacity, end_s: float) -> Capacity:
    """The first part of a trace."""
    changes = tuple(each for each in capacity.changes if each.at_s < end_s)
    return Capacity(machines=capacity.machines, changes=changes, end_s=max(end_s, 1e-9))


def replay(place: Callable[..., Place], capacity: Capacity, *, iterations: int) -> bool:
    """Kill and start the learners of a place as machines go and come; compare the bits."""
    began, digests, reference = time.monotonic(), list[str](), list[str]()
    due = [(int(iterations * each.at_s / capacity.end_s) + 1, each) for each in capacity.changes]
    changes = [(count, each) for count, each in due if count < iterations]

    def train_until(count: int) -> list[str]:
        while len(found := run.digests()) < min(count, iterations):
            time.sleep(0.05)
        return found

    with tempfile.TemporaryDirectory() as scratch:
        run = place(Path(scratch), capacity.machines, iterations=iterations, unit_s=UNIT_S)
        try:
            for count, change in changes:
                train_until(count)
                (run.begin if change.present else run.lose)(change.machine)
            digests = train_until(iterations)
            reference = [each.update_digest for each in LocalRun(run.config, coded=False)]
        except FullrankError as error:
            print(f"\nit ended: {error}")
        finally:
            run.end()
    equal, lost = digests == reference, sum(not change.present for _, change in changes)
    print(
        f"\n{place.__name__}: {capacity.machines} learners, of which {lost} were killed and "
        f"{len(changes) - lost} started again: {len(digests)} of {iterations} iterations "
        f"in {time.monotonic() - began:.0f} s, bits {'equal to' if equal else 'OTHER than'} those "
        "of the undisturbed run."
    )
    return bool(digests) and equal


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="simulate a part of each process")
    parser.add_argument("--services", action="store_true", help="simulate nothing")
    parser.add_argument("--containers", action="store_true", help="by containers of this host")
    parser.add_argument("--iterations", type=int, default=200, help="of the run on this host")
    parser.add_argument("--plot", type=Path)
    chosen = parser.parse_args(arguments)
    holds = True
    if not chosen.services:
        print(
            "| machines go as by | N | losses | iterations | published | pace | goodput | "
            + " | ".join(f"restart {restart_s:.0f} s" for restart_s in RESTARTS_S)
            + " | bits |\n|---|---|---|---|---|---|---|---|---|---|---|"
        )
        outcomes = []
        for process in PROCESSES:
            outcomes.append(outcome := simulated(process, share=chosen.share))
            show(outcome)
        cheaper = show_costs(outcomes[0])
        if chosen.plot:
            draw(outcomes[0]).savefig(chosen.plot, dpi=150)
        holds = cheaper and all(outcome.holds for outcome in outcomes)
    small = recorded(TRACE, machines=4)
    place = Containers if chosen.containers else Host
    holds &= replay(place, small, iterations=chosen.iterations)
    print(f"\nThe claim {'holds' if holds else 'falls short'}.")
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
