"""The public face of ``fullrank.rpc``: watch a run from a program of your own.

>>> from fullrank.client import Monitor
>>> with Monitor("127.0.0.1:50053") as monitor:  # doctest: +SKIP
...     for record in monitor.watch():
...         print(record.iteration, record.return_mean)
"""

from fullrank.algorithms import Unit
from fullrank.config import TlsSettings
from fullrank.rpc.identity import Role
from fullrank.rpc.monitor import AsyncMonitor, Monitor, Policies
from fullrank.rpc.run_status import (
    CodeInUse,
    Forecast,
    LearnerStatus,
    Plan,
    RunState,
    RunStatus,
    Setup,
)
from fullrank.rpc.security import Security
from fullrank.runs.record import IterationRecord

__all__ = [
    "AsyncMonitor",
    "CodeInUse",
    "Forecast",
    "IterationRecord",
    "LearnerStatus",
    "Monitor",
    "Plan",
    "Policies",
    "Role",
    "RunState",
    "RunStatus",
    "Security",
    "Setup",
    "TlsSettings",
    "Unit",
]
