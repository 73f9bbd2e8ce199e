"""The places in which a run may be an object, and finding the one of a name."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from fullrank.cli.compose import Compose
from fullrank.cli.kubernetes import Kubernetes
from fullrank.cli.objects import ThisHost
from fullrank.common.errors import ConfigError, NotFound, ServiceLost

Place: TypeAlias = ThisHost | Compose | Kubernetes
PLACES: dict[str, Place] = {place.name: place for place in (ThisHost(), Compose(), Kubernetes())}


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
    if on is not None:
        if (place := place_on(on)) is not PLACES[ThisHost.name] and not place.knows(run):
            raise NotFound(f"there is no run {run!r} on {place.name}")
        return place, run
    if os.sep in run:
        return PLACES[ThisHost.name], run
    known = [place for place in PLACES.values() if _knows(place, run)]
    if len(known) > 1:
        raise ConfigError(
            f"there is a run {run} on {' and on '.join(place.name for place in known)}: say which "
            "by --on"
        )
    return (known or [PLACES[ThisHost.name]])[0], run


def _knows(place: Place, run: str) -> bool:
    with suppress(ServiceLost):
        return run in place.names()
    return False
