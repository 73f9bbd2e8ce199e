"""Finding a run by its directory, by its monitor's address, or as the newest one."""

from pathlib import Path

from fullrank.cli.options import tls_of
from fullrank.cli.runs import meant
from fullrank.host.run_directory import is_address
from fullrank.net.monitor import Monitor, monitor_of
from fullrank.net.status import RunStatus, ended_status
from fullrank.runs.record import METRICS, IterationRecord, read_records


def ended(run: str | None) -> tuple[RunStatus, list[IterationRecord]] | None:
    """The status and the iterations of a run that has ended, from its directory.

    Returns:
        None if it has not, or its directory is not here.
    """
    found = meant(run)
    if is_address(found) or (status := ended_status(Path(found))) is None:
        return None
    metrics = Path(found) / METRICS
    return status, read_records(metrics) if metrics.exists() else []


def dial(run: str | None, certificates: Path | None) -> Monitor:
    """Dial the monitor of a run at its current address.

    Raises:
        FullrankError: There is no such run.
        ServiceLost: It has no controller at the moment.
    """
    address, security = monitor_of(meant(run), tls_of(certificates))
    return Monitor(address, security=security)
