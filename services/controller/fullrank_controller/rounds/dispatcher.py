"""Assignments of one round, from encoded rows to the outboxes of their holders."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby

from fullrank.common.failpoints import reach
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.replay.samplers import Sample
from fullrank.run.round import OpenRound
from fullrank.runs.events import Added, Assigned
from fullrank_controller.learners.broadcast import AssignmentEncoder, EncodeAssignment
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds.timeline import Timeline
from fullrank_controller.run import Run

log = logging.getLogger(__name__)


class Dispatcher:
    """Sends rows of C, and extra rows, to learners.

    Args:
        run: Its event log receives each assignment before it is sent.
        opened: The open round.
        encoder: Holds the encoded parameters.
        sample: The minibatch.
        timeline: Records when each learner was assigned a row.
        deadline_s: Deadline of the round, which assignments carry.
    """

    def __init__(
        self,
        run: Run,
        opened: OpenRound[Member],
        encoder: AssignmentEncoder,
        sample: Sample,
        *,
        timeline: Timeline,
        deadline_s: float,
    ) -> None:
        self._run, self._opened = run, opened
        self._encoder, self._sample, self._timeline = encoder, sample, timeline
        self._deadline_s = deadline_s
        self._latest: dict[LearnerId, tuple[Member, int, EncodeAssignment]] = {}
        """The assignment that each learner was sent last."""

    async def assign(self, rows: Sequence[int]) -> None:
        """Encode and send rows of C by share; the first ones travel while the next are encoded.

        Args:
            rows: Whole shares, ascending.
        """
        holders, ids = self._opened.assignment.holders, self._run.identity.ids(self._opened)
        self._record((row, holders[row]) for row in rows)
        width = self._opened.assignment.code.rows_per_learner
        for share, (first, *_) in groupby(rows, key=lambda row: row // width):
            encode = partial(
                self._encoder.encode,
                share,
                ids=ids,
                sample=self._sample,
                deadline_s=self._deadline_s,
            )
            await self._send(holders[first], first, encode)

    async def add(self, added: Mapping[Member, Mapping[int, UnitIndex]]) -> None:
        """Send extra rows, the units of a new attempt, to their holders."""
        ids = self._run.identity.ids(self._opened)
        rows = tuple(item for units_by_row in added.values() for item in units_by_row.items())
        self._run.event_log.append(
            Added(term=ids.term, epoch=ids.epoch, iteration=ids.iteration, units=rows)
        )
        self._record(
            (row, member) for member, units_by_row in added.items() for row in units_by_row
        )
        for member, units_by_row in added.items():
            encode = partial(
                self._encoder.encode_units,
                units_by_row,
                ids=ids,
                sample=self._sample,
                deadline_s=self._deadline_s,
            )
            await self._send(member, next(iter(units_by_row)), encode)
        log.warning(
            "recoded iteration=%d attempt=%d units=%s learners=%s",
            ids.iteration,
            ids.attempt,
            sorted(unit for _, unit in rows),
            sorted(member.learner for member in added),
        )

    async def send_again(self, learner: LearnerId) -> None:
        """Send a learner its last assignment and all later ones by stream."""
        latest = self._latest.get(learner)
        if latest is not None:
            member = latest[0]
            member.vectors = None
            log.warning("sections_unreadable learner=%d: they are sent from now on", learner)
            await self._send(*latest)

    def _record(self, rows: Iterable[tuple[int, Member]]) -> None:
        ids = self._run.identity.ids(self._opened)
        self._run.event_log.append(
            Assigned(
                term=ids.term,
                epoch=ids.epoch,
                iteration=ids.iteration,
                attempt=ids.attempt,
                rows=tuple((row, member.learner) for row, member in rows),
            )
        )

    async def _send(self, member: Member, row: int, encode: EncodeAssignment) -> None:
        self._latest[member.learner] = member, row, encode
        shared = member.vectors is not None
        encoded = encode(shared=shared)
        member.outbox.assign(encoded, deadline_s=self._deadline_s)
        self._timeline.assigned(member.learner, row)
        reach("row.assigned")
        if not shared:
            await asyncio.sleep(0)  # let the stream write before the next row is encoded
