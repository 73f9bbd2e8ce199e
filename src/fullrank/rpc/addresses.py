"""Addresses of services: a fixed ``host:port``, or port 0 and an announcement.

With port 0 the system picks a free port, so that two runs on one machine never collide. The
service then announces its address in ``<run>/services/<name>.json``; callers read it again before
each attempt.
"""

import json
import os
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError, ServiceLost


def port_of(address: str) -> int:
    """The port of ``host:port``."""
    return int(address.rpartition(":")[2])


def announce(run_dir: Path | None, service: str, address: str) -> None:
    """Write a service's address (and process id) into the run directory, atomically."""
    if run_dir is None:
        return
    announcement = json.dumps({"address": address, "pid": os.getpid()})
    replace_text(_path(run_dir, service), announcement)


def withdraw(run_dir: Path | None, service: str) -> None:
    """Remove an announcement."""
    if run_dir is not None:
        _path(run_dir, service).unlink(missing_ok=True)


def resolve(configured: str, run_dir: Path | None, service: str) -> str:
    """The address to dial now.

    Raises:
        ServiceLost: The service has not announced itself yet; trying again may help.
        ConfigError: Port 0 without a run directory to look in.
    """
    if not configured.endswith(":0"):
        return configured
    if run_dir is None:
        raise ConfigError(
            f"{service}.address is {configured}: give --run-dir to find its port, or a fixed port"
        )
    try:
        return str(json.loads(_path(run_dir, service).read_text())["address"])
    except FileNotFoundError:
        raise ServiceLost(f"the {service} has not announced its address in {run_dir} yet") from None


def _path(run_dir: Path, service: str) -> Path:
    return run_dir / "services" / f"{service}.json"
