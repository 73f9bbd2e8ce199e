"""Deterministic simulation testing: the controller in virtual time, under seeded faults."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.faultlab.outcome import FaultOutcome
from tests.faultlab.simulation import toy_algorithm  # registers the algorithm
from tests.faultlab.simulation.run import SimulatedRun
from tests.faultlab.simulation.virtual_loop import Deadlock, VirtualLoop

from fullrank.common.seeding import stream
from fullrank.config.layers import load
from fullrank.config.tree import RunConfig

ITERATIONS = 6
CODES = ("cyclic", "mds", "replication", "random_sparse")
INDEPENDENT = 0.25
"""Share of the runs in which learners draw samples of their own."""
SUMS = 0.25
"""Share of the other runs that recover the sum of all units."""

COLLECTED = 0.5
"""Share of the runs whose episodes are played by collectors."""
COLLUDED = 0.2
"""Share of the runs with a shared minibatch in which learners lie together."""
REPEATED = ("cyclic", "mds")
"""Codes in which several learners hold every unit."""
STORED = 0.25
"""Share of the runs that have a store, from which controllers go on on other machines."""

__all__ = [
    "collectors_of",
    "colluders_of",
    "configuration",
    "lag_of",
    "simulate",
    "stored",
    "sums_of",
    "toy_algorithm",
]


def collectors_of(seed: int) -> int:
    """Number of collectors of a simulated run; 0: the controller plays."""
    draws = stream(seed, "collectors")
    return int(draws.integers(2, 5)) if draws.random() < COLLECTED else 0


def lag_of(seed: int) -> int:
    """``collect.lag`` of a simulated run, on which its committed bits depend."""
    return int(stream(seed, "lag").integers(4 if collectors_of(seed) else 2))


def sums_of(seed: int) -> bool:
    """True if a simulated run recovers the sum of its units, unless its learners draw samples."""
    return bool(stream(seed, "sums").random() < SUMS)


def independent_of(seed: int) -> bool:
    """True if the learners of a simulated run draw samples of their own."""
    return bool(stream(seed, "samples").random() < INDEPENDENT)


def colluders_of(seed: int) -> int:
    """``audit.byzantine`` of a simulated run, of which as many learners lie together."""
    draws = stream(seed, "colluders")
    colluded = draws.random() < COLLUDED and not independent_of(seed)
    return int(draws.integers(1, 3)) if colluded else 0


def stored(seed: int) -> bool:
    """True if the state of a simulated run is kept outside the machine of its controller."""
    return bool(stream(seed, "mirror").random() < STORED)


def configuration(
    *,
    lag: int,
    code: str = "cyclic",
    learners: int = 5,
    colluders: int = 0,
    store: str = "",
    audit: int = 0,
    independent: bool = False,
    sums: bool = False,
    keyed: bool = False,
    collectors: int = 0,
    undecodable: str = "wait",
) -> RunConfig:
    """A run of tiny vectors.

    Its committed bits depend on ``lag``, ``sums`` and ``keyed`` alone or, with ``independent``, on
    the received learners.
    """
    algorithm = "independent_toy" if independent else "summed_toy" if sums else "toy"
    overrides = [
        f"iterations={ITERATIONS}",
        f"learners={learners}",
        f"code.name={code}",
        f"algorithm.name={algorithm}",
        f"collect.lag={lag}",
        "collect.steps=7",  # episodes of 25 steps cross iterations
        "collect.warmup=8",
        "collect.warmup_copies=2",
        "environment.copies=1",
        "replay.capacity=64",
        f"audit.every={audit}",
        f"store.url={store}",
        "store.lag_s=0.2",
        "checkpoint.every=2",
        "checkpoint.keep=2",
        "controller.deadline_s=1.0",
        "controller.lost_after_s=4.0",
        f"controller.undecodable={undecodable}",
    ]
    if colluders:
        overrides += [f"audit.byzantine={colluders}", "controller.inexact=fail"]
        if code != "mds":  # which tolerates most by itself
            overrides.append(f"code.tolerance={colluders + 1}")
    if keyed:
        overrides += [
            "collect.mode=keyed",
            "collect.block=1",
            f"collectors.count={collectors}",
            "environment.copies=2",
            "replay.capacity=128",
        ]
    return load(None, environ={}, overrides=overrides).check().config


def _drawn(seed: int, *, store: str) -> RunConfig:
    """The configuration of a seed."""
    draws, colluders, sums = stream(seed, "run"), colluders_of(seed), sums_of(seed)
    code = str(draws.choice(CODES))
    if colluders:
        code = "fractional" if sums else str(stream(seed, "repeated").choice(REPEATED))
    return configuration(
        lag=lag_of(seed),
        code=code,
        learners=int(draws.integers(4, 8)),
        colluders=colluders,
        store=store if stored(seed) else "",
        audit=int(draws.choice((0, 2))),
        independent=independent_of(seed),
        sums=sums,
        keyed=collectors_of(seed) > 0,
        collectors=collectors_of(seed),
        undecodable=str(stream(seed, "late").choice(("wait", "hedge"))),
    )


def _play(loop: VirtualLoop, run: SimulatedRun) -> str:
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(run.play())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()


def simulate(seed: int, *, digests: Sequence[str], parameters: str) -> FaultOutcome:
    """Simulate one run under the faults of a seed and check its invariants.

    Where learners draw samples of their own, every iteration must be committed, with any bits.

    Args:
        seed: Key of the run and of its faults.
        digests: Update digest of each iteration of the fault-free run.
        parameters: Digest of its final parameters.
    """
    outcome, independent = FaultOutcome(seed), independent_of(seed)
    loop = VirtualLoop()
    loop.set_exception_handler(
        lambda _, context: outcome.violations.append(
            f"crash: {context.get('exception', context)!r}"
        )
    )
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        config = _drawn(seed, store=f"{scratch}/store")
        try:
            final = _play(loop, SimulatedRun(config, Path(scratch), outcome))
        except (Exception, Deadlock) as error:
            outcome.violations.append(f"crash: {error!r}")
            return outcome
        history = read_history(Path(scratch), stored=bool(config.store.url))
        outcome.violations += violations(
            history,
            reference=digests,
            lag=config.collect.lag,
            proved=config.audit.byzantine > 0,
        )
    if not independent and final != parameters:
        outcome.violations.append(f"exact: the run ended with parameters {final}, not {parameters}")
    return outcome
