"""The public face of ``fullrank.net``: watch a run from a program of your own.

>>> from fullrank.client import Monitor
>>> with Monitor("127.0.0.1:50053") as monitor:  # doctest: +SKIP
...     for record in monitor.watch():
...         print(record.iteration, record.return_mean)
"""

from fullrank.algorithms import Unit
from fullrank.config.tree import TlsSettings
from fullrank.host.certificates import Role
from fullrank.net.channel import Security
from fullrank.net.monitor import AsyncMonitor, Monitor, Policies
from fullrank.net.status import (
    CodeInUse,
    ForecastStatus,
    LearnerStatus,
    PlanStatus,
    RunState,
    RunStatus,
    Setup,
)
from fullrank.runs.record import IterationRecord

__all__ = [
    "AsyncMonitor",
    "CodeInUse",
    "ForecastStatus",
    "IterationRecord",
    "LearnerStatus",
    "Monitor",
    "PlanStatus",
    "Policies",
    "Role",
    "RunState",
    "RunStatus",
    "Security",
    "Setup",
    "TlsSettings",
    "Unit",
]
