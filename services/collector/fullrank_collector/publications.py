"""Publications as they arrive on a collector's stream: the newest whole one counts."""

import asyncio
from collections.abc import Sequence

import numpy as np

from fullrank.algorithms.problem import Section
from fullrank.common.errors import InvalidContribution
from fullrank.net.codec import Assembler
from fullrank.net.messages import head_of
from fullrank.training.block_player import Publication
from fullrank.training.heads import Heads
from fullrank.v1 import controller_pb2 as pb

CONTAINERS = 2**16
"""Most containers of a run, each of which has a head."""


class Publications:
    """Assembles the publications of one stream.

    Args:
        sections: All sections of the run.
        peer: The controller, for messages.
        heads: Takes the heads of containers, where collectors are containers.

    Attributes:
        newest: The newest whole one; None before the first.
        arrived: Set once there is one.
    """

    def __init__(
        self, sections: Sequence[Section], *, peer: str, heads: Heads | None = None
    ) -> None:
        self._sections, self._peer, self._heads = sections, peer, heads
        self.newest: Publication | None = None
        self.arrived = asyncio.Event()
        self._announced: Publication | None = None
        self._missing: list[Assembler] = []

    def take(self, order: pb.CollectorOrder) -> None:
        """Take the publication, or the chunks of one, that a message holds.

        Raises:
            InvalidContribution: It names a section that the run has not, or did not announce.
        """
        if order.WhichOneof("message") == "publication":
            self._announce(order.publication)
        for chunk in order.chunks:
            if not self._missing:
                raise InvalidContribution(f"{self._peer}: an unannounced section")
            self._missing[0].add(chunk)
            if self._missing[0].complete:
                del self._missing[0]
        if self._announced is not None and not self._missing:
            self.newest, self._announced = self._announced, None
            self.arrived.set()

    def _announce(self, announced: pb.Publication) -> None:
        if any(section >= len(self._sections) for section in announced.sections):
            raise InvalidContribution(f"{self._peer}: there is no such section")
        if any(head.container >= CONTAINERS for head in announced.heads):
            raise InvalidContribution(f"{self._peer}: there is no such container")
        if self._heads is not None:
            for head in announced.heads:
                self._heads.publish(head.container, head_of(head, size=self._heads.size))
        sections = {
            id_: np.empty(self._sections[id_].size, np.float32) for id_ in announced.sections
        }
        self._announced = Publication(version=announced.version, sections=sections)
        self._missing = [Assembler(values, array_id=id_) for id_, values in sections.items()]
