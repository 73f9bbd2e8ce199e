"""``fullrank chaos``: schedules of faults, judged by the histories that they leave."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any

import typer

from fullrank.common.errors import InvariantBroken
from fullrank.config import RunConfig
from fullrank.local import LocalRun
from fullrank_faultlab import rehearsal
from fullrank_faultlab.disturbances import disturb

CHUNK = 50
"""Schedules that a process plays before it tells."""


def chaos(
    schedules: Annotated[
        int, typer.Option("--schedules", min=1, help="Schedules to play, a seed each.")
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of the first schedule.")] = 0,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Play so many at once.")] = 1,
    services: Annotated[
        bool,
        typer.Option("--services", help="Disturb real processes on this machine, not a rehearsal."),
    ] = False,
) -> None:
    """Play runs of the controller in virtual time, under crashes, partitions and corruption.

    Learners die, lie, fall silent and repeat themselves; messages are late, lost, doubled, swapped
    and flipped; controllers are killed, at failpoints too, or followed while they live; checkpoints
    rot. Each run must keep every invariant and end with the bits of the undisturbed one, unless its
    learners draw samples of their own, as in a quarter of the schedules.

    With --services controller, replay and learners are real processes, half a minute a schedule:
    they are killed, told to stop and frozen, their connections are cut, held, delayed and
    throttled, and learners' vectors are changed on their way.
    """
    started = time.monotonic()
    played = misfortunes = 0
    play, chunk = (_disturb, 1) if services else (_rehearse, CHUNK)
    for outcome in _outcomes(range(seed, seed + schedules), processes, play, chunk):
        played += 1
        misfortunes += len(outcome.injected)
        if services or outcome.wrong:
            print(f"seed {outcome.seed}:", *outcome.injected, sep="\n  ", flush=True)
        if outcome.wrong:
            raise InvariantBroken(
                f"schedule {outcome.seed} of {schedules} from {seed}: {'; '.join(outcome.wrong)}; "
                f"play it again with `fullrank chaos {'--services ' * services}--schedules 1 "
                f"--seed {outcome.seed}`"
            )
    took_s = time.monotonic() - started
    print(f"{played} schedules, {misfortunes} misfortunes, no violation, {took_s:.0f} s")


def _outcomes(
    seeds: range, processes: int, play: Callable[[Sequence[int]], list[Any]], chunk: int
) -> Iterator[Any]:
    parts = [seeds[start : start + chunk] for start in range(0, len(seeds), chunk)]
    if processes == 1:
        yield from (outcome for part in parts for outcome in play(part))
        return
    with ProcessPoolExecutor(processes) as pool:
        for outcomes in pool.map(play, parts):
            yield from outcomes


def _disturb(seeds: Sequence[int]) -> list[Any]:
    return list(map(disturb, seeds))


def _rehearse(seeds: Sequence[int]) -> list[Any]:
    logging.disable(logging.CRITICAL)  # what services say of faults that are meant
    try:
        return [_rehearsed(seed) for seed in seeds]
    finally:
        logging.disable(logging.NOTSET)


def _rehearsed(seed: int) -> Any:
    digests, parameters = _undisturbed(rehearsal.configuration(lag=rehearsal.lag_of(seed)))
    return rehearsal.rehearse(seed, digests=digests, parameters=parameters)


_KNOWN: dict[int, tuple[list[str], str]] = {}


def _undisturbed(config: RunConfig) -> tuple[list[str], str]:
    """Digests of the iterations and of the final parameters, without learners or a network."""
    lag = config.collect.lag
    if lag not in _KNOWN:
        run = LocalRun(config, coded=False)
        _KNOWN[lag] = [each.update_digest for each in run.train()], run.parameter_digest()
    return _KNOWN[lag]
