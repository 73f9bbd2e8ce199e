"""Audits of blocks: false ones are refuted, and blocks that cannot be proved are believed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import cast

import numpy as np
import pytest
from tests.unit.services.controller.builders import NUMERICS
from tests.unit.services.controller.free_blocks import TERM, joined, make_pool, settle, terms
from tests.waiting import WAIT_S

from fullrank.common.errors import EnvironmentFailed
from fullrank.replay.staging import rows_digest
from fullrank.training.block_player import BlockPlayer, PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.training.episodes import Outcomes
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.blocks_in import BlockReport
from fullrank_controller.membership.member import Numerics
from fullrank_controller.rounds.block_audit import BlockAudit
from fullrank_controller.watchdog import Watchdog

KEY = BlockKey(TERM, 0)


def block(value: float) -> PlayedBlock:
    """An episode of three steps."""
    outcomes = Outcomes(np.zeros((1, 2)), np.zeros(1, bool), np.array([3]))
    return PlayedBlock(np.full((3, 1), value, np.float32), outcomes)


class Audit:
    """A collector, and the audit of its blocks by a controller that plays what ``answer`` says."""

    def __init__(
        self, answer: Callable[[], PlayedBlock], *, share: float = 1.0, own: Numerics = NUMERICS
    ) -> None:
        self.pool, self._answer, self.versions = make_pool(), answer, list[int]()
        self.phases = list[str]()
        self.member = joined(self.pool, process=b"one")
        self.audit = BlockAudit(
            self.pool,
            share=share,
            secret=b"secret",
            make_player=lambda: cast(BlockPlayer, self),
            own_numerics=lambda: own,
            watchdog=cast(Watchdog, self),
        )

    def play(self, key: BlockKey, play: PlayTerms) -> PlayedBlock:
        """Play as the controller."""
        self.versions.append(play.publication.version)
        return self._answer()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Stand for the watchdog."""
        self.phases.append(name)
        try:
            yield
        finally:
            self.phases.remove(name)

    def close(self) -> None:
        """Close no environments."""

    def report(self, value: float, *, container: pb.ContainerReport | None = None) -> BlockReport:
        """Report a block."""
        played = block(value)
        return BlockReport(
            KEY,
            len(played.rows),
            rows_digest(played.rows),
            played.outcomes,
            member=self.member,
            play=terms(5),
            container=container,
        )


async def test_a_block_that_is_another_one_here_is_refuted_and_its_collector_convicted() -> None:
    """It plays nothing when it dials again, either."""
    audit = Audit(lambda: block(1.0))
    assert await audit.audit.refuted([audit.report(1.0)]) == []
    assert await audit.audit.refuted([audit.report(2.0)]) == [KEY]
    assert audit.versions == [5, 5, 5]
    joined(audit.pool, process=b"one")
    assert not audit.pool.eligible
    honest = joined(audit.pool, process=b"another")
    assert list(audit.pool.eligible) == [honest]
    assert (
        "collector 0 on host (process 6f6e65) was found wrong"
        in audit.pool.roster.verdicts.lines[0]
    )
    assert not audit.pool.progress.caveats


async def test_returns_that_were_not_played_are_refuted() -> None:
    audit = Audit(lambda: block(1.0))
    report = audit.report(1.0)
    earned = report.outcomes._replace(earned=np.ones((1, 2)))
    assert await audit.audit.refuted([report._replace(outcomes=earned)]) == [KEY]


async def test_only_drawn_blocks_are_played_and_those_of_the_convicted_are_void() -> None:
    audit = Audit(lambda: block(1.0), share=0.0)
    assert await audit.audit.refuted([audit.report(2.0)]) == []
    assert not audit.versions
    audit.pool.convict(audit.report(2.0))
    assert await audit.audit.refuted([audit.report(1.0), audit.report(2.0)]) == [KEY, KEY]
    assert not audit.versions


def _fail() -> PlayedBlock:
    raise EnvironmentFailed("the game is gone")


def _drift() -> Callable[[], PlayedBlock]:
    values = count(3)
    return lambda: block(next(values))


ANOTHER = Numerics.of("b", [b"p"])
UNPROVABLE = {
    "of containers": (_fail, NUMERICS, pb.ContainerReport()),
    "of another numeric fingerprint": (_fail, ANOTHER, None),
    "that the controller could not play": (_fail, NUMERICS, None),
    "of an environment that does not repeat": (_drift(), NUMERICS, None),
}


@pytest.mark.parametrize("reason", UNPROVABLE)
async def test_a_block_that_cannot_be_proved_is_believed_and_counted(reason: str) -> None:
    answer, own, container = UNPROVABLE[reason]
    audit = Audit(answer, own=own)
    assert await audit.audit.refuted([audit.report(2.0, container=container)]) == []
    (caveat,) = audit.pool.progress.caveats
    assert caveat.startswith(f"1 blocks drawn by audit.blocks are believed: 1 {reason}")
    assert audit.member in audit.pool.eligible


async def test_a_block_that_is_played_again_when_the_run_ends_is_watched() -> None:
    release = threading.Event()

    def hang() -> PlayedBlock:
        assert release.wait(WAIT_S)
        return block(1.0)

    audit = Audit(hang)
    refuting = asyncio.create_task(audit.audit.refuted([audit.report(1.0)]))
    await settle()
    refuting.cancel()
    await asyncio.gather(refuting, return_exceptions=True)
    assert not audit.phases
    ending = asyncio.create_task(audit.audit.end())
    await settle()
    watched = list(audit.phases)
    release.set()
    await asyncio.wait_for(ending, WAIT_S)
    assert (watched, audit.phases) == (["playing a block again"], [])
