"""The monitor's port, from its start to its end."""

from fullrank.config import MonitorSettings
from fullrank.rpc.addresses import announce
from fullrank.rpc.security import Security
from fullrank.rpc.server import Server
from fullrank.v1 import controller_pb2, monitor_pb2
from fullrank_controller.monitor.log import Iterations
from fullrank_controller.monitor.servicer import PREBUILT, MonitorServicer
from fullrank_controller.monitor.subscription import Watching
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.run_state import Run

DRAIN_S = 0.5
"""Grace for calls in flight: those who watch were told, and who does not read is not waited for."""


class Monitoring:
    """Serves MonitorService over a run.

    Args:
        settings: Where.
        run: What is seen.
        directory: The run's; the port is announced there.
        security: How it is served.
    """

    def __init__(
        self, settings: MonitorSettings, run: Run, directory: RunDirectory, *, security: Security
    ) -> None:
        self._settings, self._run, self._directory = settings, run, directory
        self._iterations = Iterations(directory.metrics)
        self._watching = Watching(self._iterations, finished=self._finished)
        self._server = Server(
            monitor_pb2.DESCRIPTOR.services_by_name["MonitorService"],
            MonitorServicer(run, self._watching, directory.checkpoints),
            security=security,
            prebuilt=PREBUILT,
        )

    def _finished(self, last: int) -> bool:
        finished = self._run.state == controller_pb2.RUN_STATE_FINISHED
        return finished and last + 1 == self._run.iterations

    async def start(self) -> None:
        """Bind, serve and announce.

        Raises:
            AddressInUse: The address is taken or cannot be bound.
        """
        address = await self._server.start(self._settings.listen or self._settings.address)
        announce(self._directory.path, "monitor", address)

    async def stop(self) -> None:
        """Let those who watch go, and close."""
        self._directory.withdraw("monitor")
        await self._watching.close()
        await self._server.stop(drain_s=DRAIN_S)
        self._iterations.close()
