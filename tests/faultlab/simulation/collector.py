"""A simulated collector: no network or threads, and injected misbehaviour."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import numpy as np
from tests.faultlab.simulation.link import SimulatedStream

from fullrank import __version__
from fullrank.algorithms import Section
from fullrank.common.errors import FullrankError
from fullrank.common.types import RunTerm
from fullrank.net.messages import run_term_message
from fullrank.training.block_player import BlockPlayer, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_collector.block_messages import block_messages
from fullrank_collector.publications import Publications
from fullrank_controller.collectors.pool import CollectorPool

CollectorStream: TypeAlias = SimulatedStream[pb.CollectorMessage, pb.CollectorOrder]

OVERDUE_S = 4.0
"""Mean duration of a slow block: beyond the first deadline, so that it is reassigned."""


class CollectorBehaviour(Enum):
    """Behaviour of a collector on one block."""

    PLAY = auto()
    SLOW = auto()
    HANG = auto()
    """Answer nothing."""
    DIE = auto()
    """Break the stream after half of the messages."""
    REPEAT = auto()
    """Send every message twice."""
    RAISE = auto()
    """Report that the environment raised."""
    DAMAGE = auto()
    """Change a bit of a row; the digest is that of the sound block."""
    LIE = auto()
    """Be slow and, once another one has played the block, send another block with its digest."""


@dataclass(slots=True, kw_only=True)
class SimulatedCollector:
    """Connects, plays, and connects again.

    Args:
        connect: A stream to the present controller, and its collectors; None while there is none.
        player: Plays blocks with parameters of its own.
        sections: Sections of the run's parameters.
        behaviour: Draws the behaviour on each block.
        draws: Generator of its delays.
        ready: What it says of its numerics.
    """

    connect: Callable[[], tuple[CollectorStream, CollectorPool] | None]
    player: BlockPlayer
    sections: Sequence[Section]
    behaviour: Callable[[], CollectorBehaviour]
    draws: np.random.Generator
    ready: pb.Ready
    stream: CollectorStream | None = None
    _served: RunTerm = field(default=RunTerm("", 0))

    async def run(self) -> None:
        """Serve controllers for ever."""
        while True:
            connected = self.connect()
            if connected is not None:
                self.stream, pool = connected
                with suppress(FullrankError):
                    await self._converse(self.stream, pool)
                self.disconnect()
            await asyncio.sleep(self.draws.exponential(0.2))

    def disconnect(self) -> None:
        """Break the stream."""
        if self.stream is not None:
            self.stream.cut()

    async def _converse(self, stream: CollectorStream, pool: CollectorPool) -> None:
        hello = pb.Hello(version=__version__, host="", served=run_term_message(self._served))
        stream.send(pb.CollectorMessage(hello=hello))
        welcome = (await stream.receive()).welcome
        self._served = RunTerm(welcome.run, welcome.term)
        stream.send(pb.CollectorMessage(ready=self.ready))
        publications = Publications(self.sections, peer="the controller")
        while True:
            order = await stream.receive()
            publications.take(order)
            newest = publications.newest
            if order.WhichOneof("message") == "play" and newest is not None:
                play = PlayTerms(publication=newest.publication, env_steps=order.play.env_steps)
                await self._play(stream, pool, order.play, play)

    async def _play(
        self, stream: CollectorStream, pool: CollectorPool, order: pb.Play, play: PlayTerms
    ) -> None:
        behaviour, key = self.behaviour(), BlockKey(order.iteration, order.block)
        slow = behaviour in (CollectorBehaviour.SLOW, CollectorBehaviour.LIE)
        await asyncio.sleep(self.draws.exponential(OVERDUE_S if slow else 0.05))
        if behaviour is CollectorBehaviour.HANG:
            return
        if behaviour is CollectorBehaviour.RAISE:
            failed = pb.Failed(iteration=key.iteration, block=key.block, reason="it raised")
            stream.send(pb.CollectorMessage(failed=failed))
            return
        played = self.player.play(key, play)
        digest = played.digest
        if behaviour is CollectorBehaviour.DAMAGE:
            played.rows.view(np.uint8).reshape(-1)[
                int(self.draws.integers(played.rows.nbytes))
            ] ^= 1
        if behaviour is CollectorBehaviour.LIE and key not in pool.scheduler.waiting:
            played = played._replace(earned=played.earned + 1.0)
            digest = played.digest
        messages = block_messages(key, played, digest=digest)
        for message in messages * 2 if behaviour is CollectorBehaviour.REPEAT else messages:
            stream.send(pb.CollectorMessage.FromString(message))
            if behaviour is CollectorBehaviour.DIE:
                stream.cut()
                return
