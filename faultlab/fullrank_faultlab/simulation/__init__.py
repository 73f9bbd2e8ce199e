"""A controller's services rehearsed in virtual time, under schedules of faults drawn from seeds."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fullrank.common.seeding import stream
from fullrank.config import RunConfig, load
from fullrank.runs.event_log import read_history
from fullrank_faultlab.invariants import violations
from fullrank_faultlab.rehearsal import sketch  # registers the algorithm
from fullrank_faultlab.rehearsal.clock import Stuck, VirtualLoop
from fullrank_faultlab.rehearsal.schedule import Outcome, Schedule

ITERATIONS = 6
CODES = ("cyclic", "mds", "replication", "random_sparse")
INDEPENDENT = 0.25
"""Share of the schedules in which learners draw samples of their own."""

__all__ = ["Outcome", "configuration", "lag_of", "rehearse", "sketch"]


def lag_of(seed: int) -> int:
    """Whether the schedule's run collects ahead, on which what it commits depends."""
    return int(stream(seed, "lag").integers(2))


def configuration(
    *,
    lag: int,
    code: str = "cyclic",
    learners: int = 5,
    audit: int = 0,
    independent: bool = False,
) -> RunConfig:
    """A run of tiny vectors.

    What it commits depends on ``lag`` alone, or, where learners draw samples of their own, on who
    was received.
    """
    algorithm = "independent_sketch" if independent else "sketch"
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
        "checkpoint.every=2",
        "checkpoint.keep=2",
        "controller.deadline_s=1.0",
        "controller.join_deadline_s=2.0",
        "controller.lost_after_s=4.0",
        "controller.undecodable=wait",
    ]
    return load(None, environ={}, overrides=overrides).check().config


def _play(loop: VirtualLoop, schedule: Schedule) -> str:
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(schedule.play())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()


def rehearse(seed: int, *, digests: Sequence[str], parameters: str) -> Outcome:
    """Play one schedule and judge it.

    Where learners draw samples of their own, every iteration must have been committed, but nobody
    knows its bits before.

    Args:
        seed: Of the schedule.
        digests: What the run without learners commits, an iteration each.
        parameters: The digest of the parameters at its end.
    """
    draws = stream(seed, "run")
    independent = stream(seed, "samples").random() < INDEPENDENT
    config = configuration(
        lag=lag_of(seed),
        code=str(draws.choice(CODES)),
        learners=int(draws.integers(4, 8)),
        audit=int(draws.choice((0, 2))),
        independent=independent,
    )
    outcome = Outcome(seed)
    loop = VirtualLoop()
    loop.set_exception_handler(
        lambda _, context: outcome.wrong.append(f"crash: {context.get('exception', context)!r}")
    )
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        try:
            finished = _play(loop, Schedule(config, Path(scratch), outcome))
        except (Exception, Stuck) as error:
            outcome.wrong.append(f"crash: {error!r}")
            return outcome
        outcome.wrong += violations(read_history(Path(scratch)), reference=digests)
    if not independent and finished != parameters:
        outcome.wrong.append(f"exact: the run ended with parameters {finished}, not {parameters}")
    return outcome
