"""Intake of a table that grows by arrival: many writers' episodes, each stored once, by groups.

Episodes of one writer rise in sequence. A sequence up to the writer's last one is not stored again:
it is a repeat if the table has stored it, and otherwise was passed over. The last sequences are
facts of the rows (``authorship``), so that an intake over a reopened table knows them.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from fullrank.common.errors import ConfigError, InvalidContribution
from fullrank.common.types import JSON, FloatArray
from fullrank.replay.authorship import ENTRIES, Authorship, authorships, joined
from fullrank.replay.episode_checks import are_sound, check_episode, check_finite
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.limits import rows_per_append
from fullrank.replay.pace import Pace
from fullrank.replay.rate_limiter import RateLimiter
from fullrank.replay.table import Table

WINDOW = 1024
"""Most episodes of a writer that are sent and not settled."""
REMEMBERED = 4096
"""Writers that are remembered though the table holds none of their episodes any more."""


class WrittenEpisode(NamedTuple):
    """An episode as its writer sends it."""

    writer: int
    sequence: int
    version: int
    """Committed iterations behind the parameters with which it began."""
    rows: FloatArray
    """Packed steps without their authorship, shape (n, row_size - ``ENTRIES``)."""


class Fate(Enum):
    """Outcome of an episode; all but ``STORED`` and ``REPEATED`` are not in the table."""

    STORED = auto()
    REPEATED = auto()
    """Stored before, and acknowledged again."""
    PASSED_OVER = auto()
    """Refused before a later episode of its writer was stored, or evicted since."""
    STALE = auto()
    """It began with parameters that are too old."""
    INVALID = auto()
    """It is not an episode of this table."""


class Outcome(NamedTuple):
    """Fate of an episode, and the reason if it is not in the table."""

    fate: Fate
    reason: str = ""
    """Opens with the field that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Rules of a table that grows by arrival."""

    episodes: EpisodeLayout | None
    """Columns where rows are steps of whole episodes; None where they are transitions."""
    pace: Pace

    def to_json(self) -> JSON:
        """Convert the rules to JSON."""
        layout = self.episodes
        sizes = layout and (layout.observation_sizes, layout.action_sizes, layout.state_size)
        return {"pace": asdict(self.pace), "episodes": sizes}

    @classmethod
    def of_json(cls, content: JSON) -> "Arrival":
        """Read what ``to_json`` wrote."""
        sizes = content["episodes"]
        return cls(
            episodes=sizes
            and EpisodeLayout(
                observation_sizes=tuple(sizes[0]),
                action_sizes=tuple(sizes[1]),
                state_size=sizes[2],
            ),
            pace=Pace(**content["pace"]),
        )


class Reach(NamedTuple):
    """How far a table reaches when an iteration is drawn."""

    tail: int
    head: int
    episodes: int
    """Number of the newest episode."""


@dataclass(slots=True)
class _Sequences:
    """Sequences of one writer."""

    first: int
    """The first one known."""
    last: int
    position: int
    """Position of the last one's last row."""
    gaps: set[int] = field(default_factory=set)
    """Those of the newest ``WINDOW`` that were not stored."""

    def store(self, sequence: int, position: int) -> None:
        """Note that a later sequence was stored."""
        oldest = sequence - WINDOW
        self.gaps = {gap for gap in self.gaps if gap > oldest}
        self.gaps.update(range(max(self.last, oldest) + 1, sequence))
        self.last, self.position = sequence, position

    def holds(self, sequence: int) -> bool:
        """True if the table is known to have stored it."""
        known = max(self.first, self.last - WINDOW + 1) <= sequence <= self.last
        return known and sequence not in self.gaps


class Intake:
    """Stores the episodes of a table's writers.

    Args:
        table: Its rows are episodes with an authorship, or there is none.
        arrival: The rules.

    Attributes:
        arrival: As given.
        iteration: The newest iteration that asked for its range, 0 before.
        episodes: Number of the newest episode.
        repeated: Episodes that were sent again after they were stored.

    Raises:
        ConfigError: The table holds rows that were written by position.
    """

    def __init__(self, table: Table, arrival: Arrival) -> None:
        self._table, self.arrival = table, arrival
        self._writers: OrderedDict[int, _Sequences] = OrderedDict()
        self._greeted: OrderedDict[int, int] = OrderedDict()
        self._limiter = RateLimiter(window=table.capacity)
        self._drawn_tail: int | None = None
        self.iteration = self.episodes = self.repeated = 0
        self._read_back()

    @property
    def entries(self) -> int:
        """Entries of a row as writers send it."""
        return self._table.row_size - ENTRIES

    @property
    def most_rows(self) -> int:
        """Most rows of an episode, and of a group."""
        return min(self._table.capacity, rows_per_append(4 * self._table.row_size))

    def _read_back(self) -> None:
        """Find the sequences that the table holds."""
        table = self._table
        positions = np.arange(table.tail, table.head)
        every = authorships(table.entries(positions, slice(-ENTRIES, None)))
        signed = np.flatnonzero(every[:, 3])
        if len(positions) and (not len(signed) or signed[-1] != len(positions) - 1):
            raise ConfigError("the table holds rows by position; use another run directory")
        for position, (writer, sequence, _, number) in zip(
            positions[signed].tolist(), every[signed].tolist(), strict=True
        ):
            self._note(writer, sequence, position)
            self.episodes = number

    def _note(self, writer: int, sequence: int, position: int) -> None:
        """Note that an episode was stored; forget writers of whom the table holds none."""
        if writer not in self._writers:
            first = self._greeted.pop(writer, sequence)
            self._writers[writer] = _Sequences(first, first - 1, position)
        self._writers[writer].store(sequence, position)
        self._writers.move_to_end(writer)
        while len(self._writers) > REMEMBERED:
            oldest, sequences = next(iter(self._writers.items()))
            if sequences.position >= self._table.tail:
                break
            del self._writers[oldest]

    def last_of(self, writer: int) -> int:
        """Last sequence of a writer that was stored, 0 if none is known."""
        known = self._writers.get(writer)
        return known.last if known is not None else 0

    def missing(self, writer: int, *, first: int) -> list[int]:
        """Sequences from ``first`` up to the writer's last one that the table does not hold.

        Of those before the newest ``WINDOW``, nothing is known.
        """
        known = self._writers.get(writer)
        if known is None:
            return []
        begin = max(first, known.last - WINDOW + 1)
        return [each for each in range(begin, known.last + 1) if not known.holds(each)]

    def greet(self, writer: int, *, first: int) -> None:
        """Learn from a writer's first message that it awaits no answer for what is before."""
        if writer not in self._writers:
            self._greeted[writer] = first
        while len(self._greeted) > REMEMBERED:
            self._greeted.popitem(last=False)

    def admitted(self, episodes: Iterable[WrittenEpisode]) -> int:
        """Number of the first ones that may be stored now, together."""
        count = rows = 0
        for episode in episodes:
            rows += len(episode.rows)
            if rows > self.most_rows or not self._admits(count, rows):
                break
            count += 1
        return count

    def _admits(self, before: int, rows: int) -> bool:
        """True if one more episode may be stored, so many rows after the head in all."""
        pace, head = self.arrival.pace, self._table.head + rows
        if self._drawn_tail is not None and head - self._table.capacity > self._drawn_tail:
            return False
        if not pace.updates_per_episode and not self._limiter.admits(head):
            return False
        return pace.may_store(self.episodes + before, iteration=self.iteration)

    def store(self, episodes: Sequence[WrittenEpisode]) -> list[Outcome]:
        """Store those that are new, valid and not stale, in one append; return all outcomes.

        Raises:
            StorageFailed: The storage does not take them; nothing of the group is stored.
        """
        chosen_before: dict[int, set[int]] = {}
        sound = self._are_sound(episodes)
        outcomes = [self._judged(episode, chosen_before, sound=sound) for episode in episodes]
        chosen = [
            episode
            for episode, outcome in zip(episodes, outcomes, strict=True)
            if outcome.fate is Fate.STORED
        ]
        if chosen:
            self._append(chosen)
        self.repeated += sum(outcome.fate is Fate.REPEATED for outcome in outcomes)
        return outcomes

    def _append(self, episodes: Sequence[WrittenEpisode]) -> None:
        authors = [
            Authorship(episode.writer, episode.sequence, episode.version, self.episodes + number)
            for number, episode in enumerate(episodes, 1)
        ]
        position = self._table.head - 1
        self._table.append(position + 1, joined([each.rows for each in episodes], authors))
        for episode in episodes:
            position += len(episode.rows)
            self._note(episode.writer, episode.sequence, position)
        self.episodes += len(episodes)

    def _are_sound(self, episodes: Sequence[WrittenEpisode]) -> bool:
        """True if every episode of a group is known to be valid."""
        layout = self.arrival.episodes
        return (
            bool(episodes)
            and layout is not None
            and are_sound([episode.rows for episode in episodes], layout)
        )

    def _judged(
        self, episode: WrittenEpisode, chosen: dict[int, set[int]], *, sound: bool
    ) -> Outcome:
        """Judge an episode, after those of its group that are chosen already, by writer."""
        writer, sequence, version, rows = episode
        known, before = self._writers.get(writer), chosen.setdefault(writer, set())
        last = max([*before, known.last if known is not None else 0])
        if sequence <= last:
            if sequence in before or (known is not None and known.holds(sequence)):
                return Outcome(Fate.REPEATED)
            reason = f"sequence {sequence} is not in the table, and {last} of its writer is"
            return Outcome(Fate.PASSED_OVER, reason)
        if self.arrival.pace.is_stale(version, iteration=self.iteration):
            reason = f"version {version} is too old in iteration {self.iteration}"
            return Outcome(Fate.STALE, reason)
        try:
            if not sound:
                self._check(rows)
        except InvalidContribution as error:
            return Outcome(Fate.INVALID, str(error))
        before.add(sequence)
        return Outcome(Fate.STORED)

    def _check(self, rows: FloatArray) -> None:
        """Refuse, with ``InvalidContribution``, rows that are not an episode of this table."""
        check_finite(rows)
        if self.arrival.episodes is not None:
            check_episode(rows, self.arrival.episodes)

    def may_draw(self, iteration: int) -> bool:
        """True if the pace lets an iteration begin."""
        return self.arrival.pace.may_update(iteration, episodes=self.episodes)

    def asked(self, iteration: int) -> None:
        """Note the iteration that is to begin: older parameters become stale, room may appear."""
        self.iteration = max(self.iteration, iteration)

    def draw(self, *, newest: int) -> Reach:
        """Return what an iteration may draw from, which is kept until it was ``gathered``.

        Args:
            newest: Most rows to draw from.
        """
        table = self._table
        tail = max(table.tail, table.head - newest)
        self._drawn_tail = tail
        self._limiter.sampled(table.head)
        return Reach(tail, table.head, self.episodes)

    def gathered(self, iteration: int) -> None:
        """Note that an iteration's minibatch was gathered: its range may be evicted."""
        if iteration >= self.iteration:
            self._drawn_tail = None
