"""The places in which a run may be an object, asked at once, and finding the one of a name."""

import os
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from multiprocessing import TimeoutError as Late
from multiprocessing.pool import ThreadPool
from pathlib import Path
from time import monotonic
from typing import TypeAlias, TypeVar

from fullrank.cli.compose import Compose
from fullrank.cli.kubernetes import Kubernetes
from fullrank.cli.say import say
from fullrank.cli.this_host import ThisHost
from fullrank.common.errors import ConfigError, DeadlinePassed, FullrankError, NotFound

Place: TypeAlias = ThisHost | Compose | Kubernetes
PLACES: dict[str, Place] = {place.name: place for place in (ThisHost(), Compose(), Kubernetes())}
ANSWER_S, AT_ONCE = 100.0, 32
"""Longest wait for the answers of all that are asked at once, and how many these are at most."""
Asked = TypeVar("Asked")
Reply = TypeVar("Reply")


def place_on(on: str) -> Place:
    """The place that ``--on`` names, a Compose file or an overlay included.

    Raises:
        ConfigError: There is no such place.
    """
    if on in PLACES:
        return PLACES[on]
    path = Path(on)
    if path.is_file():
        return Compose(path)
    if path.is_dir():
        return Kubernetes(path)
    raise ConfigError(
        f"--on {on}: must be {', '.join(PLACES)}, a Compose file or the directory of an overlay"
    )


def found(run: str, on: str | None) -> tuple[Place, str]:
    """The place of a run, and its name there; a path, and an unknown name, is of this host.

    Raises:
        ConfigError: Several places have a run of that name.
        NotFound: The one that was named has none.
    """
    here = PLACES[ThisHost.name]
    if on is not None:
        if not isinstance(place := place_on(on), ThisHost) and not place.knows(run):
            raise NotFound(f"there is no run {run!r} on {place.name}")
        return place, run
    if os.sep in run:
        return here, run
    known = [place for place, names in names_of([*PLACES.values()]) if run in names] or [here]
    if len(known) > 1:
        raise ConfigError(
            f"there is a run {run} on {' and on '.join(place.name for place in known)}: say which "
            "by --on"
        )
    return known[0], run


def names_of(
    places: Sequence[Place], *, needed: bool = False
) -> Iterator[tuple[Place, Sequence[str]]]:
    """Yield the names of the runs of each place that answers; a late one is said to be left out.

    Raises:
        FullrankError: A needed one does not answer.
    """
    for place, names in at_once(lambda each: each.names(), places):
        if not isinstance(names, FullrankError):
            yield place, names
        elif needed:
            raise names
        elif isinstance(names, DeadlinePassed):
            say(f"{place.name} is left out: {names}", error=True)


def at_once(
    ask: Callable[[Asked], Reply], whom: Sequence[Asked]
) -> Iterator[tuple[Asked, Reply | FullrankError]]:
    """Ask several at once, and yield their answers, or errors, in order."""
    until_s = monotonic() + ANSWER_S * ceil(len(whom) / AT_ONCE)
    with ThreadPool(min(AT_ONCE, len(whom)) or 1) as pool:  # whose threads are not waited for
        for each, asked in [(each, pool.apply_async(ask, (each,))) for each in whom]:
            try:
                yield each, asked.get(max(0.0, until_s - monotonic()))
            except FullrankError as error:
                yield each, error
            except Late:
                yield each, DeadlinePassed(f"no answer within {ANSWER_S:.0f} s")
