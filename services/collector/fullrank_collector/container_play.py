"""A container on one stream: what it plays with, what it hands over, and what it learns meanwhile.

Updates run on a thread of their own. The event loop reads and writes trunk and head between two
updates alone, so that neither is read half written.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

import numpy as np

from fullrank.common.errors import ServiceLost
from fullrank.config.collection import ContainerSettings
from fullrank.net.messages import head_message
from fullrank.training.block_player import PlayedBlock, PlayTerms, Publication
from fullrank.training.container import Container
from fullrank.training.episodes import Outcomes
from fullrank.v1 import controller_pb2 as pb

log = logging.getLogger(__name__)


class HeadLost(ServiceLost):
    """The head of a container is no use; the container begins anew on the next stream."""


class ContainerPlay:
    """Lets a container play and learn for one stream.

    Args:
        container: The container, which takes its first trunk from this stream.
        settings: The settings of containers.
        section: Section of the network that acts.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        container: Container,
        settings: ContainerSettings,
        *,
        section: int,
        clock: Callable[[], float],
    ) -> None:
        self._container, self._settings = container, settings
        self._section, self._clock = section, clock
        self._acting: Publication | None = None
        self._newer: Publication | None = None
        """The centraliser's parameters, as long as an update keeps them from being taken."""
        self._taken_at = self._published_at = -math.inf
        self._stored, self._updating = asyncio.Event(), False
        self._divergence = 0.0
        container.trunk_version = -1  # a later term may have taken updates back

    def terms(self, newest: PlayTerms, *, oldest: int) -> PlayTerms:
        """Return the parameters of the next block: the trunk's version names them.

        Args:
            newest: The newest parameters of the centraliser, taken every ``every_s``.
            oldest: Oldest version that is accepted; an earlier trunk is replaced at once.
        """
        acting, now = self._acting, self._clock()
        is_due = now >= self._taken_at + self._settings.every_s
        if acting is None or is_due or acting.version < oldest:
            self._newer, self._taken_at = newest.publication, now
            self._refresh()
        assert self._acting is not None  # the first is taken before any update
        return PlayTerms(publication=self._acting, env_steps=newest.env_steps)

    def _refresh(self) -> None:
        """Take the newer trunk, and act with what was learned, unless an update is running."""
        if self._updating:
            return
        container, newer = self._container, self._newer
        if newer is not None:
            container.take_trunk(newer.version, newer.sections[self._section])
            self._newer = None
        if self._settings.learn:
            sections = {self._section: container.learner.acting}
            self._acting = Publication(version=container.trunk_version, sections=sections)
        elif newer is not None:
            self._acting = newer

    def share(self, played: PlayedBlock, *, version: int) -> tuple[PlayedBlock, pb.ContainerReport]:
        """Keep the episodes of a block; return those that travel, and facts about the container."""
        container, episodes = self._container, played.episodes
        travelling = container.store(episodes)
        self._stored.set()
        rows = np.concatenate([played.rows[:0], *(episodes[number] for number in travelling)])
        earned, won, lengths = played.outcomes
        outcomes = Outcomes(earned[travelling], won[travelling], lengths[travelling])
        report = pb.ContainerReport(
            version=version,
            handed_over=travelling,
            updates=container.learner.updates,
            divergence=self._divergence,
        )
        return PlayedBlock(rows, outcomes), report

    async def learn(self, send: Callable[[pb.CollectorMessage], Awaitable[None]]) -> None:
        """Update and publish the head until cancelled.

        Raises:
            HeadLost: The head is no use; dial again, to go on with the published one.
        """
        container = self._container
        while True:
            while not container.may_learn:
                self._stored.clear()
                await self._stored.wait()
            error = await self._update()
            if not container.is_sound:
                what = f"was lost in an update, {error!r}," if error else "is not finite"
                raise HeadLost(
                    f"the head of container {container.number} {what} after "
                    f"{container.learner.updates} updates; it goes on with the published one"
                )
            if self._clock() >= self._published_at + self._settings.every_s:
                self._published_at = self._clock()
                message = head_message(container.number, container.publish())
                await send(pb.CollectorMessage(head=message))

    async def _update(self) -> BaseException | None:
        """Take one step, and return its error; a stream that ends meanwhile waits for its end."""
        container = self._container
        arguments = container.minibatch()
        update = asyncio.ensure_future(asyncio.to_thread(container.step, *arguments))
        self._updating = True
        try:
            await asyncio.wait({update})
        finally:
            await asyncio.wait({update})
            self._updating = False
        if error := update.exception():
            log.warning("update_failed container=%d", container.number, exc_info=error)
            return error
        self._divergence = update.result().get("divergence", 0.0)
        self._refresh()
        return None
