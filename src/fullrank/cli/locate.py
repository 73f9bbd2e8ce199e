"""Finding a run by its directory, by its monitor's address, or as the newest one."""

from collections.abc import Callable
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


def locate(run: str | None, certificates: Path | None) -> Callable[[], Monitor]:
    """A function that dials the run's monitor at its current address.

    The function also looks for the run, and raises ``FullrankError`` if there is none.
    """
    tls = tls_of(certificates)

    def dial() -> Monitor:
        address, security = monitor_of(meant(run), tls)
        return Monitor(address, security=security)

    return dial
