"""Assignments of one round, from encoded rows to the outboxes of their holders."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby

from fullrank.common.failpoints import reach
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.replay.samplers import Sample
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Added, Assigned
from fullrank_controller.learners.broadcast import AssignmentEncoder, EncodeAssignment
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.rounds.open_round import OpenRound
from fullrank_controller.rounds.timeline import Timeline

log = logging.getLogger(__name__)

ANY: frozenset[LearnerId] = frozenset()
"""Excludes no learner from computing a unit."""


class Dispatcher:
    """Sends rows of C, and extra rows, to learners.

    Args:
        opened: The open round.
        encoder: Holds the encoded parameters.
        sample: The minibatch.
        roster: Learners that may take extra rows.
        event_log: Receives each assignment before it is sent.
        timeline: Records when each learner was assigned a row.
        deadline_s: Deadline of the round, which assignments carry.
    """

    def __init__(
        self,
        opened: OpenRound,
        encoder: AssignmentEncoder,
        sample: Sample,
        *,
        roster: Roster,
        event_log: EventLog,
        timeline: Timeline,
        deadline_s: float,
    ) -> None:
        self._opened, self._encoder, self._sample = opened, encoder, sample
        self._roster, self._event_log, self._timeline = roster, event_log, timeline
        self._deadline_s = deadline_s
        self._latest: dict[LearnerId, tuple[Member, int, EncodeAssignment]] = {}
        """The assignment that each learner was sent last."""

    async def assign(self, rows: Sequence[int]) -> None:
        """Encode and send rows of C by share; the first ones travel while the next are encoded.

        Args:
            rows: Whole shares, ascending.
        """
        holders, ids = self._opened.assignment.holders, self._opened.ids
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

    async def assign_units(self, units: Mapping[frozenset[LearnerId], Sequence[UnitIndex]]) -> bool:
        """Have units computed as extra rows, in a new attempt; False if no learner is idle.

        Args:
            units: Units by the learners that must not compute them.
        """
        opened = self._opened
        added = assign_rows(opened, self._roster.eligible, units)
        if not added:
            return False
        opened.attempt += 1
        ids = opened.ids
        rows = tuple(item for units_by_row in added.values() for item in units_by_row.items())
        self._event_log.append(
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
        return True

    async def send_again(self, learner: LearnerId) -> None:
        """Send a learner its last assignment and all later ones by stream."""
        latest = self._latest.get(learner)
        if latest is not None:
            member = latest[0]
            member.vectors = None
            log.warning("sections_unreadable learner=%d: they are sent from now on", learner)
            await self._send(*latest)

    def _record(self, rows: Iterable[tuple[int, Member]]) -> None:
        ids = self._opened.ids
        self._event_log.append(
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


def assign_rows(
    opened: OpenRound,
    eligible: Sequence[Member],
    units: Mapping[frozenset[LearnerId], Sequence[UnitIndex]],
) -> dict[Member, dict[int, UnitIndex]]:
    """Give each unit, as an extra row, to the next learner whose own rows have arrived.

    Args:
        opened: The round to which the rows are added.
        eligible: Learners that may hold rows.
        units: Units by the learners that must not compute them.

    Returns:
        The units of the added rows, by holder and row; empty if no learner is idle.
    """
    round_, assignment = opened.round, opened.assignment
    idle = [member for member in eligible if round_.rows.issuperset(assignment.rows_of(member))]
    added: dict[Member, dict[int, UnitIndex]] = {}
    for excluded, unit in ((learner, unit) for learner, wanted in units.items() for unit in wanted):
        member = next((member for member in idle if member.learner not in excluded), None)
        if member is not None:
            idle.append(idle.pop(idle.index(member)))  # the next unit goes to the next learner
            row = round_.add(unit)
            assignment.add_extra_row(row, unit, member)
            added.setdefault(member, {})[row] = unit
    return added
