"""Addresses of services: a fixed ``host:port``, or ``local`` or port 0 and an announcement.

A ``local`` service has a unix socket of its own; with port 0 the system picks a free port. Two runs
on one machine never collide. The service then announces its address in
``<run>/services/<name>.json``; callers read it again before each attempt.
"""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError, Malformed, ServiceLost
from fullrank.common.foreign import parse_json, read_regular
from fullrank.common.types import JSON
from fullrank.config.values import LOCAL
from fullrank.rpc.sockets import remove_socket


def is_announced(configured: str) -> bool:
    """True if a configured address is known only once its service has announced it."""
    return configured == LOCAL or configured.endswith(":0")


def is_address(run: str) -> bool:
    """True if ``run`` is the address of a run's monitor rather than the run's directory."""
    return re.fullmatch(r".+:\d+|unix:/.+", run) is not None and not Path(run).exists()


_MOST_BYTES = 2**16
"""Largest announcement."""


def port_of(address: str) -> int:
    """The port of ``host:port``."""
    return int(address.rpartition(":")[2])


def announce(run_dir: Path | None, service: str, address: str) -> None:
    """Write a service's address (and process id) into the run directory, atomically.

    A directory that does not exist is made: a sidecar has no other use for one. The socket of a
    predecessor that was killed is removed.
    """
    if run_dir is None:
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    withdraw(run_dir, service)
    facts = {"address": address, "pid": os.getpid(), **place_of(run_dir)}
    replace_text(_path(run_dir, service), json.dumps(facts))


def withdraw(run_dir: Path | None, service: str) -> None:
    """Remove an announcement, and the socket of a service that was killed."""
    if run_dir is not None:
        with suppress(ServiceLost):
            remove_socket(_announced(run_dir, service))
        _path(run_dir, service).unlink(missing_ok=True)


def resolve(configured: str, run_dir: Path | None, service: str) -> str:
    """The address to dial now.

    Raises:
        ServiceLost: The service has not announced itself yet; trying again may help.
        ConfigError: There is no run directory to look in.
    """
    if not is_announced(configured):
        return configured
    if run_dir is None:
        raise ConfigError(
            f"{service}.address is {configured}: give --run-dir to find the service, or its "
            "address host:port"
        )
    return _announced(run_dir, service)


def _announced(run_dir: Path, service: str) -> str:
    try:
        path = _path(run_dir, service)
        announced = parse_json(read_regular(path, _MOST_BYTES), origin=str(path))
        if not is_elsewhere(run_dir, announced):
            return str(announced["address"])
    except (Malformed, KeyError, TypeError, AttributeError):
        pass
    raise ServiceLost(f"the {service} has not announced its address in {run_dir} yet")


def place_of(run_dir: Path) -> JSON:
    """Path and inode of a directory: a moved one keeps its inode, a restored one its path."""
    return {"directory": str(run_dir.resolve()), "inode": run_dir.stat().st_ino}


def is_elsewhere(run_dir: Path, facts: JSON) -> bool:
    """Return whether facts that state a place were written in another directory than this."""
    here = place_of(run_dir)
    return all(facts.get(name, place) != place for name, place in here.items())


def _path(run_dir: Path, service: str) -> Path:
    return run_dir / "services" / f"{service}.json"
