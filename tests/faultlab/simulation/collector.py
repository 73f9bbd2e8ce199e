"""A simulated collector: no network or threads, and injected misbehaviour."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import numpy as np
from tests.faultlab.simulation.link import SimulatedStream
from tests.faultlab.simulation.replay import SimulatedReplay

from fullrank import __version__
from fullrank.algorithms import Section
from fullrank.common.errors import FullrankError, InvalidContribution, NotFound
from fullrank.common.types import RunTerm
from fullrank.net.messages import run_term_message
from fullrank.training.block_player import BlockPlayer, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_collector.block_play import Publications, played_message
from fullrank_controller.collectors.keyed_pool import KeyedPool

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
    """Break the stream once the block is staged."""
    REPEAT = auto()
    """Stage and report twice."""
    RAISE = auto()
    """Report that the environment raised."""
    DAMAGE = auto()
    """Change an entry of each staged row; the digest is that of the sound block."""
    LIE = auto()
    """Be slow and, once another one has played the block, report other returns."""


@dataclass(slots=True, kw_only=True)
class SimulatedCollector:
    """Connects, plays, and connects again.

    Args:
        connect: A stream to the present controller, and its collectors; None while there is none.
        player: Plays blocks with parameters of its own.
        replay: Takes the rows.
        sections: Sections of the run's parameters.
        behaviour: Draws the behaviour on each block.
        draws: Generator of its delays.
        ready: What it says of its numerics.
    """

    connect: Callable[[], tuple[CollectorStream, KeyedPool] | None]
    player: BlockPlayer
    replay: SimulatedReplay
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

    async def _converse(self, stream: CollectorStream, pool: KeyedPool) -> None:
        hello = pb.Hello(version=__version__, host="", served=run_term_message(self._served))
        stream.send(pb.CollectorMessage(hello=hello))
        welcome = (await stream.receive()).welcome
        self._served = RunTerm(welcome.run, welcome.term, welcome.instance)
        stream.send(pb.CollectorMessage(ready=self.ready))
        publications = Publications(self.sections, peer="the controller")
        while True:
            order = await stream.receive()
            publications.take(order)
            newest = publications.newest
            if order.WhichOneof("message") == "play" and newest is not None:
                play = PlayTerms(publication=newest, env_steps=order.play.env_steps)
                await self._play(stream, pool, order.play, play)

    async def _play(
        self, stream: CollectorStream, pool: KeyedPool, order: pb.Play, play: PlayTerms
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
        if behaviour is CollectorBehaviour.LIE and key not in pool.scheduler.waiting:
            outcomes = played.outcomes._replace(earned=played.outcomes.earned + 1.0)
            played = played._replace(outcomes=outcomes)
        message = played_message(key, played)
        if behaviour is CollectorBehaviour.DAMAGE:
            played.rows[:, int(self.draws.integers(played.rows.shape[1]))] += 1.0
        try:
            self.replay.stage(key, played.rows, played.outcomes.lengths.tolist(), self._served)
        except NotFound:
            message.played.staged = False
        except InvalidContribution:
            behaviour = CollectorBehaviour.DIE
        if behaviour is CollectorBehaviour.DIE:
            stream.cut()
            return
        for _ in range(2 if behaviour is CollectorBehaviour.REPEAT else 1):
            stream.send(message)
