"""``fullrank chaos``: schedules of faults in virtual time, judged by the histories they leave."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from fullrank.config import RunConfig
from fullrank.errors import InvariantBroken
from fullrank.local import LocalRun

GROUP = "fullrank.rehearsals"
CHUNK = 50
"""Schedules that a process plays before it tells."""


def chaos(
    schedules: Annotated[
        int, typer.Option("--schedules", min=1, help="Schedules to play, a seed each.")
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of the first schedule.")] = 0,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Play so many at once.")] = 1,
) -> None:
    """Play runs of the controller in virtual time, under crashes, partitions and corruption.

    Learners die, lie, fall silent and repeat themselves; messages are late, lost, doubled, swapped
    and flipped; controllers are killed, at failpoints too, or followed while they live; checkpoints
    rot. Each run must end with the bits of the undisturbed one and keep every invariant.
    """
    started = time.monotonic()
    played = misfortunes = 0
    for outcome in _outcomes(range(seed, seed + schedules), processes):
        played += 1
        misfortunes += len(outcome.injected)
        if outcome.wrong:
            print(f"seed {outcome.seed}:", *outcome.injected, sep="\n  ")
            raise InvariantBroken(
                f"schedule {outcome.seed} of {schedules} from {seed}: {'; '.join(outcome.wrong)}; "
                f"play it again with `fullrank chaos --schedules 1 --seed {outcome.seed}`"
            )
    took_s = time.monotonic() - started
    print(f"{played} schedules, {misfortunes} misfortunes, no violation, {took_s:.0f} s")


def _outcomes(seeds: range, processes: int) -> Iterator[Any]:
    parts = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if processes == 1:
        yield from (outcome for part in parts for outcome in _play(part))
        return
    with ProcessPoolExecutor(processes) as pool:
        for outcomes in pool.map(_play, parts):
            yield from outcomes


def _play(seeds: Sequence[int]) -> list[Any]:
    logging.disable(logging.CRITICAL)  # what services say of faults that are meant
    try:
        return [_rehearsed(seed) for seed in seeds]
    finally:
        logging.disable(logging.NOTSET)


def _rehearsed(seed: int) -> Any:
    rehearsal = entry_points(group=GROUP)["controller"].load()
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
