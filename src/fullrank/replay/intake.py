"""Intake of a table that grows by arrival: many writers' episodes, each stored once, by groups.

The last sequence of every writer (``writer_sequences``) is a fact of the rows (``authorship``), so
that an intake over a reopened table knows it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from fullrank.common.errors import ConfigError, InvalidContribution
from fullrank.common.types import JSON, FloatArray
from fullrank.replay.authorship import ENTRIES, Authorship, authorships, joined
from fullrank.replay.draw_window import DrawWindow
from fullrank.replay.episode_checks import are_sound, check_episode, check_finite
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.limits import rows_per_append
from fullrank.replay.pace import Pace
from fullrank.replay.table import Table
from fullrank.replay.writer_sequences import WriterSequences


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


class EpisodeOutcome(NamedTuple):
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
        """Read the text of ``to_json``."""
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

    def following(self, earlier: JSON | None) -> "Arrival":
        """Return the rules for a table that was filled under earlier ones."""
        if earlier is None:
            return self
        return replace(self, pace=replace(self.pace, first=earlier["pace"].get("first", 0)))


class Intake:
    """Stores the episodes of a table's writers.

    Args:
        table: Its rows are episodes with an authorship, or there is none.
        arrival: The rules.

    Attributes:
        arrival: As given.
        writers: Sequences that were stored.
        draws: Iterations that draw from the table.
        repeated: Episodes that were sent again after they were stored.

    Raises:
        ConfigError: The table holds rows that were written by position.
    """

    def __init__(self, table: Table, arrival: Arrival) -> None:
        self._table, self.arrival = table, arrival
        self.writers = WriterSequences()
        self.draws = DrawWindow(table, arrival.pace)
        self.repeated = 0
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
            self.draws.reopened(number)

    def _note(self, writer: int, sequence: int, position: int) -> None:
        """Note that an episode was stored whose last row has this position."""
        self.writers.store(writer, sequence, position, tail=self._table.tail)

    def admitted(self, episodes: Iterable[WrittenEpisode]) -> int:
        """Number of the first ones that may be stored now, together."""
        count = rows = 0
        for episode in episodes:
            rows += len(episode.rows)
            if rows > self.most_rows or not self.draws.admits(count, rows):
                break
            count += 1
        return count

    def store(self, episodes: Sequence[WrittenEpisode]) -> list[EpisodeOutcome]:
        """Store those that are new, valid and not stale, in one append; return all outcomes.

        Raises:
            StorageFailed: The storage does not take them; the whole group is dropped.
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
        before = self.draws.episodes
        authors = [
            Authorship(episode.writer, episode.sequence, episode.version, before + number)
            for number, episode in enumerate(episodes, 1)
        ]
        position = self._table.head - 1
        self._table.append(position + 1, joined([episode.rows for episode in episodes], authors))
        for episode in episodes:
            position += len(episode.rows)
            self._note(episode.writer, episode.sequence, position)
        self.draws.stored([episode.version for episode in episodes])

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
    ) -> EpisodeOutcome:
        """Decide an episode, given the chosen sequences of its group by writer, which it joins."""
        writer, sequence, version, rows = episode
        before = chosen.setdefault(writer, set())
        last = max([*before, self.writers.last_of(writer)])
        if sequence <= last:
            if sequence in before or self.writers.holds(writer, sequence):
                return EpisodeOutcome(Fate.REPEATED)
            reason = f"sequence {sequence} is not in the table, and {last} of its writer is"
            return EpisodeOutcome(Fate.PASSED_OVER, reason)
        if self.draws.is_stale(version):
            reason = f"version {version} is too old in iteration {self.draws.following}"
            return EpisodeOutcome(Fate.STALE, reason)
        try:
            if not sound:
                self._check(rows)
        except InvalidContribution as error:
            return EpisodeOutcome(Fate.INVALID, str(error))
        before.add(sequence)
        return EpisodeOutcome(Fate.STORED)

    def _check(self, rows: FloatArray) -> None:
        """Refuse, with ``InvalidContribution``, rows that are not an episode of this table."""
        check_finite(rows)
        if self.arrival.episodes is not None:
            check_episode(rows, self.arrival.episodes)
