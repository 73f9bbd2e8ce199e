"""Claim: 720 faults in one life of one system break no promise; 95 % of rounds commit at first try.

Replay, controller and learners are processes of this machine. One fault follows the other while
they train, drawn from a seed: a process is killed, told to stop or frozen, a line to controller or
replay is cut, silent, slow or all but closed, a learner's vectors are changed on their way
(`fullrank chaos --services`). Who ended is started again, as a supervisor would; who ended by
itself is counted. A judge hears what the services note while they do; in the end every digest and
the parameters must be those of the run that nothing befell. At first try means: committed by the
term that opened it, without a row assigned once more. Memory is shown and not judged, for services
that are young again and again scatter: soak.py judges it.

    python benchmarks/chaos_soak.py --faults 720 --iterations 7200
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import psutil

from fullrank.common.errors import FullrankError
from fullrank.runs.event_log import Assigned, Committed, Event, follow
from fullrank_faultlab.disturbances import ENDED, Misfortune, disturbed, undisturbed
from fullrank_faultlab.judge import Judge
from soak import WARM_UP, services

CLAIM = 0.95
EVERY = 5
"""Faults between two looks."""


class Tries:
    """Counts the iterations that were committed, and those whose rows were assigned once."""

    def __init__(self) -> None:
        self.committed = self.at_first = 0
        self._tries: Counter[int] = Counter()

    def hear(self, noted: Iterable[Event]) -> None:
        """Go on with what a controller noted."""
        for event in noted:
            if isinstance(event, Assigned):
                self._tries[event.iteration] += 1
            elif isinstance(event, Committed) and event.iteration >= self.committed:
                self.at_first += self._tries.pop(event.iteration, 0) == 1
                self.committed = event.iteration + 1


class Watch:
    """Looks at a run that goes on: at what it notes, and at what memory it takes."""

    def __init__(self, run_dir: Path, judge: Judge) -> None:
        self._run_dir, self._judge = run_dir, judge
        self._noted = follow(run_dir)
        self.tries = Tries()
        self.pss: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        """By service: iterations committed, and the mean proportional set size then, bytes."""

    def look(self) -> list[str]:
        """What broke a promise since the last look."""
        noted = next(self._noted)
        self.tries.hear(noted.controller)
        self._measure()
        return self._judge.hear(noted)

    def _measure(self) -> None:
        sizes = defaultdict[str, list[int]](list)
        for name, process in [*services(self._run_dir), ("this program", psutil.Process())]:
            with suppress(psutil.Error):
                sizes[name.rstrip(" 0123456789")].append(process.memory_full_info().pss)
        for name, pss in sizes.items():
            self.pss[name].append((self.tries.committed, float(np.mean(pss))))


def play(run_dir: Path, arguments: argparse.Namespace) -> tuple[list[Misfortune], Watch, list[str]]:
    """Disturb a run to its end or its first violation; what befell it, how it went, what broke."""
    reference = undisturbed(arguments.iterations)
    watch, injected = Watch(run_dir, Judge(reference.digests)), list[Misfortune]()
    run = disturbed(
        run_dir, seed=arguments.seed, iterations=arguments.iterations, faults=arguments.faults
    )
    with closing(run):
        try:
            for misfortune in run:
                injected.append(misfortune)
                print(misfortune, file=sys.stderr, flush=True)
                if len(injected) % EVERY == 0 and (wrong := watch.look()):
                    return injected, watch, wrong
        except FullrankError as error:
            return injected, watch, [*watch.look(), str(error)]
    wrong = [*watch.look(), *reference.unlike(run_dir)]
    if watch.tries.committed < arguments.iterations:
        wrong.append(f"complete: {watch.tries.committed} iterations of {arguments.iterations}")
    return injected, watch, wrong


def growth(looks: list[tuple[int, float]], iterations: int) -> float:
    """Bytes in a hundred iterations, after the first fifth."""
    steady = [look for look in looks if look[0] >= WARM_UP * iterations]
    if len(steady) < 2:
        return float("nan")
    committed, pss = np.array(steady).T
    return 100 * float(np.polyfit(committed, pss, 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=720)
    parser.add_argument("--iterations", type=int, default=7_200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    run_dir, started = Path(tempfile.mkdtemp(prefix="chaos_soak")), time.monotonic()
    injected, watch, wrong = play(run_dir, arguments)
    minutes, tries = (time.monotonic() - started) / 60, watch.tries
    print("| fault | times |\n|---|---|")
    for befell, times in sorted(
        Counter(f"{each.service}: {each.kind}" for each in injected).items()
    ):
        print(f"| {befell} | {times} |")
    print("\n| process | PSS at the end, MiB | growth in 100 iterations, MiB |\n|---|---|---|")
    slopes = {name: growth(looks, arguments.iterations) for name, looks in watch.pss.items()}
    for name, slope in sorted(slopes.items()):
        print(f"| {name} | {watch.pss[name][-1][1] / 2**20:.1f} | {slope / 2**20:+.3f} |")
    share = tries.at_first / max(tries.committed, 1)
    ended = sum(each.kind == ENDED for each in injected)
    print(f"\nits files are in {run_dir}" if wrong else "")
    if not wrong:
        shutil.rmtree(run_dir)
    print(
        f"{len(injected) - ended} faults within {tries.committed} rounds, one each "
        f"{60 * minutes / max(len(injected), 1):.1f} s for {minutes:.0f} minutes: {len(wrong)} "
        f"violations, {ended} services ended by themselves, {100 * share:.2f} % of rounds "
        f"committed at first try (claimed {CLAIM:.0%} at least), "
        + ("; ".join(wrong) or "digests and parameters those of the undisturbed run.")
    )
    return int(bool(wrong) or share < CLAIM)


if __name__ == "__main__":
    sys.exit(main())
