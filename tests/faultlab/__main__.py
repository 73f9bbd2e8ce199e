"""``python -m tests.faultlab``: inject faults into runs and check their invariants."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Annotated

import typer
from tests.faultlab import simulation
from tests.faultlab.outcome import FaultOutcome, InvariantBroken
from tests.faultlab.service_faults import run_services

from fullrank.cli.say import say
from fullrank.local import LocalRun

CHUNK = 50
"""Simulated runs that a process makes before it reports."""


def chaos(
    schedules: Annotated[
        int, typer.Option("--schedules", min=1, help="Number of runs, one seed of faults each.")
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the first run.")] = 0,
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="Runs at the same time.")
    ] = 1,
    services: Annotated[
        bool,
        typer.Option(
            "--services", help="Inject faults into real processes on this machine, no simulation."
        ),
    ] = False,
) -> None:
    """Inject faults into runs of the controller in virtual time, and check their invariants.

    Learners die, lie, fall silent and repeat themselves; messages are late, duplicated, reordered
    and corrupted; controllers are killed, also at failpoints, or superseded while they live;
    checkpoints are corrupted, and second controllers begin on the same directory. In a fifth of the
    runs sybils attach, in most of a fifth one or two learners lie together, as many as
    audit.byzantine allows, and in a quarter the controller's machine is lost, returns, or is
    followed from a store while it lives. Half of the runs hedge. In half of the runs collectors
    play: they die, hang, are slow, repeat themselves and lie, their environments raise, and their
    lines are cut and held.
    Each run must keep all invariants and end with the bits of the fault-free run, unless its
    learners draw samples of their own, as in a quarter of the runs.

    With --services controller, replay and learners are real processes, and collectors that play
    keyed or freely in two of three runs, for half a minute a run: they are killed, stopped and
    frozen, second ones are started on the same directory, their connections are cut, held, delayed
    and throttled, and learners' vectors are corrupted. Sybils attach while a row is vacant; in half
    of the runs one learner may lie (audit.byzantine), and in half the controller's machine may be
    lost. A run that collects freely has no reference: every iteration is
    recomputed.
    """
    started = time.monotonic()
    runs = faults = 0
    make, chunk = (_run_services, 1) if services else (_simulate, CHUNK)
    for outcome in _outcomes(range(seed, seed + schedules), processes, make, chunk):
        runs += 1
        faults += len(outcome.faults)
        if services or outcome.violations:
            say(f"seed {outcome.seed}:", *(f"  {fault}" for fault in outcome.faults))
        if outcome.violations:
            raise InvariantBroken(
                f"run {outcome.seed} of {schedules} from {seed}: {'; '.join(outcome.violations)}; "
                f"reproduce it with `python -m tests.faultlab {'--services ' * services}"
                f"--schedules 1 --seed {outcome.seed}`"
            )
    took_s = time.monotonic() - started
    say(f"{runs} runs, {faults} faults, no violation, {took_s:.0f} s")


def _outcomes(
    seeds: range, processes: int, make: Callable[[Sequence[int]], list[FaultOutcome]], chunk: int
) -> Iterator[FaultOutcome]:
    parts = [seeds[start : start + chunk] for start in range(0, len(seeds), chunk)]
    if processes == 1:
        yield from (outcome for part in parts for outcome in make(part))
        return
    with ProcessPoolExecutor(processes) as pool:
        for outcomes in pool.map(make, parts):
            yield from outcomes


def _run_services(seeds: Sequence[int]) -> list[FaultOutcome]:
    return list(map(run_services, seeds))


def _simulate(seeds: Sequence[int]) -> list[FaultOutcome]:
    logging.disable(logging.CRITICAL)  # injected faults would fill the log
    try:
        return [_simulate_one(seed) for seed in seeds]
    finally:
        logging.disable(logging.NOTSET)


def _simulate_one(seed: int) -> FaultOutcome:
    digests, parameters = _fault_free(
        simulation.lag_of(seed), simulation.sums_of(seed), simulation.collectors_of(seed) > 0
    )
    return simulation.simulate(seed, digests=digests, parameters=parameters)


@cache
def _fault_free(lag: int, sums: bool, keyed: bool) -> tuple[list[str], str]:
    """Update digests and the digest of the final parameters, from a run in one process."""
    run = LocalRun(simulation.configuration(lag=lag, sums=sums, keyed=keyed), coded=False)
    return [iteration.update_digest for iteration in run.train()], run.parameter_digest()


def main() -> None:
    """Run the command line; a broken invariant is one line."""
    try:
        typer.run(chaos)
    except InvariantBroken as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
