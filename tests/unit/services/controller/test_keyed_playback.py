"""Keyed collection accepts no block of a collector that was convicted before the acceptance."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from tests.unit.services.controller.free_blocks import settle, terms
from tests.waiting import WAIT_S

from fullrank.net.replay_client import ReplayClient
from fullrank.replay.staging import Grant, block_digest
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey, BlockPlan
from fullrank.training.episodes import Outcomes
from fullrank.training.rollouts import Collected
from fullrank_controller.collectors.blocks_in import BlockReport
from fullrank_controller.collectors.keyed_pool import KeyedPool
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.rounds.block_audit import BlockAudit
from fullrank_controller.rounds.playback import KeyedPlayback

FALSE, TRUE = bytes(16), bytes([1]) * 16
"""Digests of the rows of the liar, and of the honest collector."""


class Played:
    """A run of two blocks an iteration, played by a liar until it is convicted for ``false``."""

    plan = BlockPlan(copies=2, size=1)

    def __init__(self, false: BlockKey) -> None:
        roster = Roster(role="collector")
        self.liar, self.honest = (roster.join("host", now=0.0) for _ in range(2))
        self.false, self.played = false, list[tuple[BlockKey, Member]]()
        self.accepted = dict[int, list[bytes]]()
        self.playback = KeyedPlayback(
            cast(KeyedCollection, self),
            cast(ReplayClient, self),
            cast(KeyedPool, self),
            Grant(most_rows=100, episodes=None),
            audit=cast(BlockAudit, self),
        )

    def begin(self, iteration: int) -> PlayTerms:
        """Stand for the collection."""
        return terms(iteration)

    def join(self, iteration: int, outcomes: Sequence[Outcomes]) -> Collected:
        """Stand for the collection."""
        return Collected(np.zeros((0, 1), np.float32), np.zeros(0), {})

    async def play(self, iteration: int, keys: Sequence[BlockKey], play: PlayTerms) -> Any:
        """Stand for the pool: the liar plays as long as it may."""
        member = self.honest if self.liar.quarantined else self.liar
        digest = TRUE if member is self.honest else FALSE
        self.played += [(key, member) for key in keys]
        return [BlockReport(key, 0, digest, Outcomes.none(2), member=member) for key in keys]

    @contextmanager
    def awaiting(self, iteration: int) -> Iterator[None]:
        """Stand for the pool."""
        yield

    async def refuted(self, reports: Sequence[BlockReport]) -> list[BlockKey]:
        """Stand for the audit: one block is drawn."""
        if any(each.key == self.false and each.member is self.liar for each in reports):
            self.liar.quarantined = "it was found wrong"
        return [report.key for report in reports if report.is_void]

    async def grant(self, iteration: int, blocks: range, grant: Grant) -> None:
        """Stand for replay."""

    async def accept(self, iteration: int, first: int, digests: list[bytes], *, rows: int) -> None:
        """Stand for replay: all blocks are staged."""
        self.accepted[iteration] = digests


async def test_a_block_played_ahead_whose_collector_is_convicted_since_is_played_by_another() -> (
    None
):
    run = Played(false=BlockKey(2, 1))
    run.playback.begin(1)
    await settle()
    run.playback.begin(2)
    await settle()
    assert run.liar.quarantined
    for iteration in (1, 2):
        await asyncio.wait_for(run.playback.store(iteration, 0), WAIT_S)
    true = [block_digest(TRUE, [])] * 2
    assert run.accepted == {1: true, 2: true}
    assert [key for key, member in run.played if member is run.honest] == [
        *run.plan.keys(1),
        *run.plan.keys(2),
    ]
