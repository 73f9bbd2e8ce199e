"""The end of a run: recorded when it fails, and told to all that ask."""

import asyncio
import logging
from collections.abc import Iterator, Set
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any

from fullrank import __version__
from fullrank.common.errors import FullrankError, NotFound, ServiceLost, VersionMismatch
from fullrank.common.types import RunTerm
from fullrank.config.toml import settings_digest, to_toml
from fullrank.config.tree import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.process import first, is_set
from fullrank.host.run_directory import announce, lock_run, resolve, withdraw
from fullrank.net.channel import Security
from fullrank.net.errors import Context
from fullrank.net.prometheus import Exporter, Family
from fullrank.net.replay_client import close_run
from fullrank.net.server import Health, Server
from fullrank.runs.ending import Ending, failed, write_ending
from fullrank.runs.identity import CHECKPOINTS, check_continues, read_identity
from fullrank.runs.record import METRICS, published
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1 import monitor_pb2
from fullrank_controller.monitor.log import IterationLog
from fullrank_controller.monitor.servicer import PREBUILT, PublishedRun, Subscriptions
from fullrank_controller.prometheus import state_metrics

log = logging.getLogger(__name__)

_STATES = {"finished": pb.RUN_STATE_FINISHED, "failed": pb.RUN_STATE_FAILED}


def record_failure(error: FullrankError, config: RunConfig, run_dir: Path) -> Ending | None:
    """Record that the run has failed for good, unless a restart may cure the error.

    Nothing is recorded where another controller holds the directory, another release began its run,
    or the disk does not take it.
    """
    if not error.final or not run_dir.is_dir():
        return None
    try:
        check_continues(run_dir)
        with closing(lock_run(run_dir)):
            ending = failed(error, committed=published(run_dir), settings=settings_digest(config))
            write_ending(run_dir, ending)
    except VersionMismatch:  # the error that is not recorded says so
        return None
    except (FullrankError, OSError) as reason:
        log.warning("ending_not_recorded run_dir=%s reason=%s", run_dir, reason)
        return None
    return ending


async def tell(
    ending: Ending, config: RunConfig, run_dir: Path, stop: asyncio.Event, *, health: Health
) -> None:
    """Tell learners, collectors, monitors and replay how the run has ended, then return.

    The ports stay open until nobody has asked for ``controller.lost_after_s`` and replay has heard
    of the end, and no longer than ``join_deadline_s``. Returns at once if they cannot be opened, or
    another controller holds the directory.
    """
    try:
        with closing(lock_run(run_dir)):
            async with Epilogue(ending, config, run_dir) as epilogue:
                await health.at_work(True)
                await first(is_set(stop), epilogue.heard())
    except FullrankError as error:
        log.info("not_told reason=%s", error)


class Epilogue:
    """The ports of a run that has ended, without the run; an asynchronous context manager.

    Opening them raises ``AddressInUse`` if an address is taken; the directory's ``run.json`` must
    be whole, else ``Malformed``.

    Args:
        ending: The end of the run.
        config: Its addresses and certificates.
        run_dir: Its directory, which the caller holds.
    """

    def __init__(self, ending: Ending, config: RunConfig, run_dir: Path) -> None:
        self._ending, self._config, self._run_dir = ending, config, run_dir
        self._security = Security.configured(config.tls, Role.CONTROLLER)
        facts = read_identity(run_dir)
        self._run_term = RunTerm(facts.get("run", ""), facts.get("term", 0))
        self._stack = AsyncExitStack()
        self._question = asyncio.Event()

    async def __aenter__(self) -> "Epilogue":
        async with AsyncExitStack() as stack:
            exporter = Exporter(
                self._config.metrics.prometheus,
                self._metrics,
                run_dir=self._run_dir,
                name="controller",
                run=self._run_term.run,
            )
            await stack.enter_async_context(exporter)
            iterations = IterationLog(self._run_dir / METRICS)
            stack.callback(iterations.close)
            monitor = EndedMonitor(self, self._config, iterations, self._run_dir / CHECKPOINTS)
            await self._open(stack, pb, "controller", EndedController(self), {"Work", "Collect"})
            await self._open(stack, monitor_pb2, "monitor", monitor, PREBUILT)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def status(self) -> pb.GetStatusResponse:
        """The status of the run, as both services report it."""
        return pb.GetStatusResponse(
            run=self._run_term.run,
            term=self._run_term.term,
            state=_STATES[self._ending.state],
            iterations_committed=self._ending.committed,
            iterations=self._config.iterations,
            message=self._ending.reason,
            exit_code=self._ending.exit_code,
        )

    def asked(self) -> str:
        """Record that a learner or a collector asks; returns the answer."""
        self._question.set()
        return str(self._ending)

    async def heard(self) -> None:
        """Return once nobody asks any more and replay has heard of the end, or at the deadline."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.controller.join_deadline_s):
                await asyncio.gather(self.tell_replay(), self.unasked())

    async def unasked(self) -> None:
        """Return once nobody asks any more."""
        with suppress(TimeoutError):
            while True:
                self._question.clear()
                async with asyncio.timeout(self._config.controller.lost_after_s):
                    await self._question.wait()

    async def tell_replay(self) -> None:
        """Tell the replay service that this run needs it no longer, until it has heard that."""
        reason: FullrankError | None = None
        try:
            while True:
                try:
                    address = resolve(self._config.replay.address, self._run_dir, "replay")
                    await close_run(address, self._run_term, security=self._security)
                    return
                except ServiceLost as error:
                    reason = error
                await asyncio.sleep(self._config.controller.heartbeat_s)
        except FullrankError as error:
            log.info("replay_not_told reason=%s", error)
        except asyncio.CancelledError:
            log.warning("replay_not_told reason=%s", reason)
            raise

    def _metrics(self) -> Iterator[Family]:
        ending = self._ending
        return state_metrics(self._run_term.run, _STATES[ending.state], committed=ending.committed)

    async def _open(
        self, stack: AsyncExitStack, proto: Any, name: str, servicer: object, prebuilt: Set[str]
    ) -> None:
        """Serve the service of a proto at its own port, and announce it, until the stack ends."""
        settings = getattr(self._config, name)
        descriptor = proto.DESCRIPTOR.services_by_name[f"{name.title()}Service"]
        server = Server(descriptor, servicer, security=self._security, prebuilt=frozenset(prebuilt))
        address = await server.start(settings.listen or settings.address)
        stack.push_async_callback(server.stop)
        announce(self._run_dir, name, address)
        stack.callback(withdraw, self._run_dir, name)


class EndedController:
    """ControllerService over a run that has ended: it refuses every stream, and says why."""

    def __init__(self, epilogue: Epilogue) -> None:
        self._epilogue = epilogue

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> None:
        """Refuse: all leases have ended."""
        raise NotFound(f"the lease has ended: {self._epilogue.asked()}")

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        """Report how the run has ended."""
        self._epilogue.asked()
        return self._epilogue.status()

    async def _refuse(self, request: object, context: Context) -> None:
        raise ServiceLost(self._epilogue.asked())

    Work = Collect = Checkpoint = Drain = Stop = SetIterations = _refuse


class EndedMonitor(PublishedRun):
    """MonitorService over a run that has ended, from its directory alone."""

    def __init__(
        self, epilogue: Epilogue, config: RunConfig, iterations: IterationLog, checkpoints: Path
    ) -> None:
        super().__init__(Subscriptions(iterations, is_last=lambda _: True), checkpoints)
        self._epilogue, self._config = epilogue, config

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        """Report how the run has ended."""
        return self._epilogue.status()

    async def GetCode(
        self, request: monitor_pb2.GetCodeRequest, context: Context
    ) -> monitor_pb2.GetCodeResponse:
        """Refuse: no code is in use."""
        raise NotFound(f"there is no code: {self._epilogue.status().message}")

    async def GetConfiguration(
        self, request: monitor_pb2.GetConfigurationRequest, context: Context
    ) -> monitor_pb2.GetConfigurationResponse:
        """Report the configuration; the agents are not known without the environment."""
        return monitor_pb2.GetConfigurationResponse(
            run=self._epilogue.status().run,
            version=__version__,
            configuration=to_toml(self._config),
        )
