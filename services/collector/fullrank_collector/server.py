"""Composition root of the collector: replicas that share an import of torch and keep redialling.

The session of each is the collector's side of the dialogue, from Hello until the stream ends.
"""

import asyncio
import faulthandler
import logging
import socket
import time
import uuid
from asyncio import Event
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from fullrank import __version__
from fullrank.algorithms.roles import ACTING
from fullrank.common.errors import ConfigError, EnvironmentFailed, ServiceLost, Stuck
from fullrank.common.types import RunTerm
from fullrank.config.elsewhere import from_elsewhere
from fullrank.config.tree import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.children import run_replica, run_replicas
from fullrank.host.process import Launch, end_process, first, tune_process
from fullrank.net.attachment import attach_as, keep_lease, received, welcomed
from fullrank.net.channel import Security
from fullrank.net.controller_client import CollectCall, ControllerClient
from fullrank.net.errors import translated
from fullrank.net.messages import run_term_message
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import Health
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import plan_of
from fullrank_collector.block_play import BlockPlay, ContainerPlay, HeadLost, Publications
from fullrank_collector.run_context import ENDING_S, CollectorContext, TimedPlayer

log = logging.getLogger(__name__)

GOODBYE_S = 2.0
"""Longest wait for the controller to have taken the last message."""
CLOSING_S = 5.0
"""Longest wait at the end of this process for the block that it plays, and for the environments to
close; a third of ``GRACE_S``, after which its parent would kill it."""


class CollectorSession:
    """The connections of a process to the controller, each from Hello until the stream ends.

    Args:
        settings: Configuration of this process.
        pool: Executor with the one playing thread.

    Attributes:
        context: Context of the last run; None before the first.
    """

    def __init__(self, settings: RunConfig, *, pool: ThreadPoolExecutor) -> None:
        self.context: CollectorContext | None = None
        self._settings, self._pool, self._process = settings, pool, uuid.uuid4().bytes

    async def run(self, address: str, security: Security, health: Health) -> None:
        """Serve a stream until the controller ends it.

        Args:
            address: The controller's ``host:port``.
            security: TLS identity of this process.
            health: Reports whether the controller can give work to this collector.

        Raises:
            ServiceLost: The controller is unreachable or has disconnected; dial again.
            VersionMismatch: The controller runs another version.
        """
        self._client = ControllerClient(address, security=security)
        self._health, self._security = health, security
        try:
            with translated(self._client.peer):
                await self._dialogue(self._client.collect())
        finally:
            try:
                await self._health.at_work(False)
            finally:
                await self._client.close()

    async def close(self) -> None:
        """Close the environments; a block that does not end in time is cut off, or left behind."""
        if self.context is None:
            return
        player = self.context.player
        closing = asyncio.get_running_loop().run_in_executor(self._pool, self.context.close)
        await asyncio.wait({closing}, timeout=CLOSING_S)
        if not closing.done() and player.interrupt("the collector ends"):
            await asyncio.wait({closing}, timeout=ENDING_S)
        if closing.done():
            closing.result()
        else:
            log.warning("block_left %s", player.doing() or "it has not ended")

    async def _dialogue(self, call: CollectCall) -> None:
        served = run_term_message(self.context.run_term) if self.context else None
        hello = pb.Hello(
            version=__version__,
            host=socket.gethostname(),
            served=served,
            process=self._process,
            index=self.context.number if self.context else None,
        )
        welcome = await welcomed(
            call, pb.CollectorOrder, pb.CollectorMessage(hello=hello), peer=self._client.peer
        )
        settings = from_elsewhere(welcome.configuration).config.controller
        await first(
            keep_lease(self._client, welcome, settings, role=Role.COLLECTOR, say=log.warning),
            self._serve(call, welcome),
        )

    async def _serve(self, call: CollectCall, welcome: pb.Welcome) -> None:
        """Report readiness, then play what the controller asks for."""
        context = await self._context_of(welcome)
        ready = pb.Ready(
            fingerprint=context.fingerprint,
            probe=context.probe.digests,
            stable=context.probe.stable,
        )
        await call.write(pb.CollectorMessage(ready=ready).SerializeToString())
        await self._health.at_work(True)
        log.info("collector_ready collector=%d run=%s", welcome.learner, welcome.run)
        publications = Publications(
            context.problem.sections, peer=self._client.peer, heads=context.heads
        )
        config = context.config
        player = TimedPlayer(context.player, pool=self._pool, settings=config.controller)
        stager = ReplayClient(
            welcome.replay_address,
            deadline_s=self._settings.replay.deadline_s,
            security=self._security,
        )
        stager.under(context.run_term)
        blocks = BlockPlay(
            player,
            publications,
            stager,
            peer=self._client.peer,
            patience=plan_of(config).patience,
        )

        async def play() -> None:
            await publications.arrived.wait()  # with the heads of containers
            container = _container_of(context, welcome.learner)
            await self._play(call, context, blocks, container)

        try:
            await self._side_by_side(call, self._orders(call, publications, blocks.take), play())
        finally:
            await stager.close()

    async def _orders(
        self, call: CollectCall, publications: Publications, take: Callable[[pb.Play], None]
    ) -> None:
        """Read publications and orders until the controller ends the stream."""
        while True:
            order = await received(call, pb.CollectorOrder)
            publications.take(order)
            if order.WhichOneof("message") == "play":
                take(order.play)

    async def _play(
        self,
        call: CollectCall,
        context: CollectorContext,
        blocks: BlockPlay,
        container: ContainerPlay | None,
    ) -> None:
        """Play what is ordered, and learn in a container meanwhile."""
        sending = asyncio.Lock()

        async def send(message: pb.CollectorMessage) -> None:
            async with sending:
                await call.write(message.SerializeToString())

        if context.head_lost:
            await send(pb.CollectorMessage(failed=pb.Failed(reason=context.head_lost)))
            context.head_lost = ""
        playing = [blocks.run(send, container)]
        if container is not None and context.config.containers.learn:
            playing.append(container.learn(send))
        try:
            await first(*playing)
        except HeadLost as error:
            context.head_lost = str(error)
            raise

    async def _side_by_side(
        self, call: CollectCall, read: Coroutine[Any, Any, None], play: Coroutine[Any, Any, None]
    ) -> None:
        """Read and play until one ends; after a failure, let the controller end the stream.

        A stream that this side drops takes along reports that the controller has not read yet.
        """
        reading = asyncio.create_task(read)  # to cancel it is to drop the stream
        try:
            await first(asyncio.shield(reading), play)
        except (EnvironmentFailed, Stuck):
            with suppress(ServiceLost), translated(self._client.peer):
                await call.done_writing()
            await asyncio.wait({reading}, timeout=GOODBYE_S)
            raise
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _context_of(self, welcome: pb.Welcome) -> CollectorContext:
        if self.context is not None and not self.context.serves(welcome):
            self.context.close()
            self.context = None
        if self.context is None:
            loop = asyncio.get_running_loop()
            self.context = await loop.run_in_executor(
                self._pool, CollectorContext, welcome, self._settings
            )
        self.context.run_term = RunTerm(welcome.run, welcome.term, welcome.instance)
        return self.context


def _container_of(context: CollectorContext, number: int) -> ContainerPlay | None:
    """Return the container of a number for one stream; None where collectors are none."""
    container = context.container(number)
    if container is None:
        return None
    (section,) = (each.id for each in context.problem.sections if each.role in ACTING)
    return ContainerPlay(
        container, context.config.containers, section=section, clock=time.monotonic
    )


STDERR = 2
"""File descriptor of the log."""


def main(launch: Launch) -> int:
    """Run the replicas until a stop signal; return the exit code."""
    import torch

    if launch.replicas > 1 and launch.config.health.address:
        raise ConfigError("health.address is one collector's; leave it empty with --replicas")
    torch.set_num_threads(launch.config.compute.threads)
    tune_process(launch)
    return run_replicas(launch, _replica, say=log.warning, clock=time.monotonic)


def _replica(launch: Launch, _: int) -> int:
    return run_replica(attach(launch))


async def attach(launch: Launch, stop: Event | None = None) -> None:
    """Dial until ``stop`` is set, by default until the process receives a stop signal.

    Collectors reconnect to a restarted controller. With ``launch.until_finished`` the collector
    ends when the run is finished.

    Raises:
        FullrankError: The failure is permanent, so that redialling cannot help.
    """
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="play")
    session = CollectorSession(launch.config, pool=pool)
    try:
        await attach_as(Role.COLLECTOR, launch, session.run, say=log.info, stop=stop)
    except Stuck as error:
        faulthandler.dump_traceback(STDERR)
        end_process(error)  # the playing thread cannot be ended
    finally:
        await session.close()
        pool.shutdown(wait=False)  # a block that hangs ends with the process
