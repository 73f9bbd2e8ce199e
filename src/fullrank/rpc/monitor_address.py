"""Address and credentials of a run's monitor."""

import os
from dataclasses import replace
from pathlib import Path

from fullrank.common.errors import ServiceLost
from fullrank.config.elsewhere import read_run, require
from fullrank.config.tree import TlsSettings
from fullrank.rpc.addresses import is_address, resolve
from fullrank.rpc.identity import Role
from fullrank.rpc.security import Security
from fullrank.runs.ending import read_ending
from fullrank.runs.record import METRICS, count_records


def monitor_of(run: str, tls: TlsSettings) -> tuple[str, Security]:
    """Address and security of a run's monitor; a restarted controller may listen elsewhere.

    Args:
        run: The run's directory, or ``host:port``.
        tls: Certificates to present; without any, those that the run is configured with.

    Raises:
        FullrankError: The directory is not that of a run, or the certificates cannot be used.
        ServiceLost: The run has no controller at the moment.
    """
    if is_address(run):
        return run, Security.of(tls, Role.MONITOR)
    config, dropped = read_run(Path(run), os.environ)
    require(dropped, "monitor.address", origin=run)
    if not tls.certificates:
        require(dropped, "tls.certificates", origin=run)
    tls = replace(tls, certificates=tls.certificates or config.tls.certificates)
    try:
        address = resolve(config.monitor.address, Path(run), "monitor")
    except ServiceLost:
        raise ServiceLost(_why_away(Path(run), config.iterations)) from None
    return address, Security.of(tls, Role.MONITOR)


def _why_away(run: Path, iterations: int) -> str:
    """The reason that a run has no controller, and the remedy."""
    if (ending := read_ending(run)) is not None and ending.state == "failed":
        return f"{run} has failed: {ending.reason}; then `fullrank resume {run}` continues it"
    if count_records(run / METRICS) >= iterations:
        return (
            f"{run} is finished after {iterations} iterations and has no controller; "
            f"`fullrank eval {run}` plays its policies, `fullrank plot {run}` draws its curves"
        )
    return f"{run} has no controller; `fullrank resume {run}` starts one"
