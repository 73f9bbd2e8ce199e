"""Orders of administrators to a run under way: checkpoint, drain, stop, another length."""

import asyncio
import logging
from dataclasses import replace

from fullrank.common.durable import replace_text
from fullrank.common.errors import InvalidContribution, ServiceLost
from fullrank.config.toml import to_toml
from fullrank.net.errors import Context, statuses
from fullrank.run.round_orders import MembershipChanged
from fullrank.runs.identity import CONFIGURATION
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.driver import Driver
from fullrank_controller.learners.servicer import ControllerServicer
from fullrank_controller.run import Run
from fullrank_controller.term import Term

log = logging.getLogger(__name__)

STOPPED = "an administrator has stopped the controller; start it again, or `fullrank run resume`"


class ObeyingServicer(ControllerServicer):
    """ControllerService over one run and the driver that takes orders.

    Args:
        term: The parts of the term.
        driver: Drives its run.
        stop: Set by the order to stop.
    """

    def __init__(self, term: Term, driver: Driver, stop: asyncio.Event) -> None:
        super().__init__(term.run)
        self._term, self._driver, self._stop = term, driver, stop

    async def Checkpoint(
        self, request: pb.CheckpointRequest, context: Context
    ) -> pb.CheckpointResponse:
        """Save the state at the next border of collections."""
        async with statuses(context):
            return pb.CheckpointResponse(iterations=await self._driver.checkpoint())

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        """Assign no more rows to a learner."""
        async with statuses(context):
            if not request.HasField("learner"):
                raise InvalidContribution("learner is not set")
            self._term.run.roster.drain(request.learner)
            log.warning("drained learner=%d", request.learner)
            self._term.run.reception.notify(MembershipChanged())
            return pb.DrainResponse()

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.StopResponse:
        """End the controller, which checkpoints first."""
        log.warning("told_to_stop")
        self._stop.set()
        return pb.StopResponse()

    async def SetIterations(
        self, request: pb.SetIterationsRequest, context: Context
    ) -> pb.SetIterationsResponse:
        """Change the number of iterations, also in the run's directory."""
        async with statuses(context):
            directory, config = self._term.directory, self._term.config
            self._driver.set_iterations(request.iterations)
            text = to_toml(replace(config, iterations=request.iterations))
            directory.confirm()
            await asyncio.to_thread(replace_text, directory.path / CONFIGURATION, text)
            log.warning("iterations_changed iterations=%d", request.iterations)
            return pb.SetIterationsResponse()


async def obeyed(stop: asyncio.Event, run: Run) -> None:
    """Return, of a finished run, or raise ``ServiceLost``, once the controller is told to stop."""
    await stop.wait()
    if not run.progress.finished:
        raise ServiceLost(STOPPED)
