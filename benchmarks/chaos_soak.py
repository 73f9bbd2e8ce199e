"""Claim: 720 faults in one long run break no promise; 95 % of rounds commit at the first attempt.

Replay, controller and learners are processes of this machine. While they train, faults drawn from a
seed follow one another: a process is killed, stopped or frozen, a connection to controller or
replay is cut, silenced, slowed or throttled to a byte a second, a learner's vectors are changed in
transit (`python -m tests.faultlab --services`). A supervisor restarts processes that ended, and
counts those that ended by themselves. The invariants are checked during the run; at its end every
digest and the parameters must equal those of the fault-free run; with `--mode free`, where
collectors play as fast as they can, every iteration must be recomputed from the table instead. A
round commits at the first attempt if the term that opened it commits it without reassigning a row.

    PYTHONPATH=. python benchmarks/chaos_soak.py --faults 720 --iterations 7200
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tests.faultlab.checker import Checker
from tests.faultlab.history import follow
from tests.faultlab.service_faults import CRASHED, FaultEvent, train_under_faults
from tests.faultlab.service_runs import UNIT_S, Mode, fault_free_run, free_run_violations

from fullrank.common.errors import FullrankError
from fullrank.runs.events import Assigned, Committed, Event

CLAIM = 0.95
FAULT_S, UNITS = 2.0, 2
"""Usual time of a fault with its repair, and units of a row: rounds are made long enough for it."""
EVERY = 5
"""Faults between two checks."""


class Tries:
    """Counts committed iterations, and those whose rows were assigned only once."""

    def __init__(self) -> None:
        self.committed = self.at_first = 0
        self._tries: Counter[int] = Counter()

    def count(self, noted: Iterable[Event]) -> None:
        """Count the events of a controller."""
        for event in noted:
            if isinstance(event, Assigned):
                self._tries[event.iteration] += 1
            elif isinstance(event, Committed) and event.iteration >= self.committed:
                self.at_first += self._tries.pop(event.iteration, 0) == 1
                self.committed = event.iteration + 1


class Watch:
    """Checks the events of a live run."""

    def __init__(self, run_dir: Path, checker: Checker) -> None:
        self._checker, self._noted = checker, follow(run_dir)
        self.tries = Tries()

    def look(self) -> list[str]:
        """Violations since the last check."""
        noted = next(self._noted)
        self.tries.count(noted.controller)
        return self._checker.check(noted)


def play(run_dir: Path, arguments: argparse.Namespace) -> tuple[list[FaultEvent], Watch, list[str]]:
    """Inject faults until the run ends or breaks a promise; return faults, watch, violations."""
    mode = arguments.mode
    reference = None if mode is Mode.FREE else fault_free_run(arguments.iterations, mode=mode)
    checker = Checker(None if reference is None else reference.digests)
    watch, injected = Watch(run_dir, checker), list[FaultEvent]()
    run = train_under_faults(
        run_dir,
        seed=arguments.seed,
        mode=mode,
        iterations=arguments.iterations,
        faults=arguments.faults,
        unit_s=max(UNIT_S, FAULT_S * arguments.faults / arguments.iterations / UNITS),
    )
    with closing(run):
        try:
            for event in run:
                injected.append(event)
                print(event, file=sys.stderr, flush=True)
                if len(injected) % EVERY == 0 and (wrong := watch.look()):
                    return injected, watch, wrong
        except FullrankError as error:
            return injected, watch, [*watch.look(), str(error)]
    wrong = watch.look()
    wrong += free_run_violations(run_dir) if reference is None else reference.differences(run_dir)
    if watch.tries.committed < arguments.iterations:
        wrong.append(f"complete: {watch.tries.committed} iterations of {arguments.iterations}")
    return injected, watch, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=720)
    parser.add_argument("--iterations", type=int, default=7_200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.INLINE)
    arguments = parser.parse_args()
    run_dir, started = Path(tempfile.mkdtemp(prefix="chaos_soak")), time.monotonic()
    injected, watch, wrong = play(run_dir, arguments)
    minutes, tries = (time.monotonic() - started) / 60, watch.tries
    print("| fault | times |\n|---|---|")
    for label, times in sorted(
        Counter(f"{fault.service}: {fault.kind}" for fault in injected).items()
    ):
        print(f"| {label} | {times} |")
    share = tries.at_first / max(tries.committed, 1)
    ended = sum(fault.kind == CRASHED for fault in injected)
    within = sum(fault.after < arguments.iterations for fault in injected) - ended
    print(f"\nits files are in {run_dir}" if wrong else "")
    if not wrong:
        shutil.rmtree(run_dir)
    print(
        f"{within} faults within {tries.committed} rounds, one every "
        f"{60 * minutes / max(len(injected), 1):.1f} s for {minutes:.0f} minutes: {len(wrong)} "
        f"violations, {ended} services ended by themselves, {100 * share:.2f} % of rounds "
        f"committed at the first attempt (claimed {CLAIM:.0%} at least), "
        + ("; ".join(wrong) or "the run ends with the bits of its reference.")
    )
    return int(bool(wrong) or share < CLAIM)


if __name__ == "__main__":
    sys.exit(main())
