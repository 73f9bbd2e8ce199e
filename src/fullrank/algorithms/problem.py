"""The problem of an algorithm: in plain numbers, the data that an iteration computes and transfers.

It needs no torch, so that services and tools that compute nothing describe iterations, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fullrank.codes.targets import is_each_unit
from fullrank.common.types import Matrix, UnitIndex
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.items import Items
from fullrank.replay.layout import Layout
from fullrank.replay.samplers import EpisodeDraw, RowDraw


class Unit(NamedTuple):
    """One unit of work; its index is its column of C."""

    agents: tuple[int, ...]
    """The group of agents that share the networks which the unit updates, often of one agent."""
    part: int = 0
    """Number of the part (micro-batch) of that update, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Parameters broadcast as one section: a network of a group, or the exponent of its sums."""

    id: int
    role: str
    """Role of the network, ``policy``, ``critic``, ``target_policy``, ..., or ``exponent``."""
    agents: tuple[int, ...]
    """The group of agents that share the network, often of one agent."""
    size: int
    """Number of float32 entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMode:
    """Origin of the transitions from which updates are computed."""

    kind: Literal["shared", "keyed", "independent"] = "shared"
    """``shared``: one minibatch from replay for all units. ``keyed``: learners collect a unit's
    transitions, the same for every holder. ``independent``: every holder draws its own transitions
    [DARL1N], so that decoding leaves noise and no update can be audited."""
    batch_size: int = 0
    """B, transitions or episodes of the minibatch from replay; 0 where learners collect."""
    newest_episodes: int = 0
    """Number of newest episodes from which B are drawn; 0 where transitions are drawn."""
    epochs: int = 0
    """Passes over each collection, in which every item of it is drawn once, B at a time, for one
    update each; 0: items are drawn from all that replay holds, for one update a collection."""
    max_variance: float = float("inf")
    """``independent``: largest predicted variance of decoded units at which an iteration waits for
    no further row, as a multiple of the variance of one learner's own update."""
    evaluate_every: int = 0
    """Without replay: number of iterations between evaluations in the environment."""
    agent_steps: int = 0
    """Without replay: environment steps that a learner plays for each agent in an iteration."""

    @property
    def exact(self) -> bool:
        """Return whether all holders of a unit compute the same bits."""
        return self.kind != "independent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Units, sections and sizes of an iteration, fixed by configuration and environment alone."""

    units: tuple[Unit, ...]
    """All units, in the order of the columns of C."""
    unit_sizes: tuple[int, ...]
    """P_i, entries of each unit's update; P = max P_i is the length of a coded vector."""
    sections: tuple[Section, ...]
    """All sections by ascending id; a section's id is its index."""
    reads: tuple[tuple[int, ...], ...]
    """Ids of the sections that each unit's update reads."""
    row_size: int
    """Number of float32 entries of a packed transition (layout: ``fullrank.replay.layout``)."""
    data: DataMode
    episodes: EpisodeLayout | None = None
    """Layout of a row if the minibatch consists of whole episodes; None: packed transitions."""
    transitions: Layout | None = None
    """Layout of a row if the minibatch consists of packed transitions, to name their entries."""
    masked: bool = False
    """True if packed transitions hold the masks of available actions."""
    prepared_by: tuple[int, ...] = ()
    """Ids of the sections from which ``Algorithm.prepare`` derives columns of played rows."""
    items: tuple[Sequence[int], ...] | None = None
    """Numbers of the items of the minibatch, transitions or episodes, that each unit's update
    reads; None: all items. A learner fetches the items that its units read."""
    statistics: int = 0
    """Number of last entries of each update that hold statistics, which have a digest of their
    own beside that of the other entries."""
    target: Matrix | None = None
    """T, shape (targets K, units), if an iteration recovers T U; None if T = I, every unit."""
    accelerated: bool = False
    """True if a CUDA device was measured to compute updates sooner than its host's CPU:
    ``compute.device = "auto"`` then takes one."""

    @property
    def layout(self) -> EpisodeLayout | Layout | None:
        """Return the layout of a row of the minibatch, where it is known."""
        return self.episodes or self.transitions

    @property
    def last_rows(self) -> int:
        """Return the rows of an episode that hold no step."""
        return 0 if self.episodes is None else 1

    def draw(self, *, newest: int) -> RowDraw | EpisodeDraw:
        """Return how an item of the minibatch is drawn, an episode from so many newest ones."""
        if self.episodes is None:
            return RowDraw()
        return EpisodeDraw(length=self.episodes.length, newest=newest)

    @property
    def learns_team_reward(self) -> bool:
        """Return whether agents learn from the reward of all of them together."""
        return self.episodes is not None and not self.episodes.own_rewards

    @property
    def vector_size(self) -> int:
        """Return P, the number of entries of a coded vector."""
        return max(self.unit_sizes)

    @property
    def recovers_units(self) -> bool:
        """Return whether T = I, so that decoding gives every u_i."""
        return self.target is None or is_each_unit(self.target)

    def needs(self, unit: UnitIndex) -> Sequence[int]:
        """Return the ids of the sections that the update of a unit reads."""
        return self.reads[unit]

    def items_of(self, units: Iterable[UnitIndex]) -> Items:
        """Return the numbers of the items that these units read; None if they read all."""
        if self.items is None:
            return None
        read = {item for unit in units for item in self.items[unit]}
        return tuple(sorted(read)) if len(read) < self.data.batch_size else None

    def share_of(self, units: Iterable[UnitIndex]) -> float:
        """Return the share of the minibatch's items that these units read."""
        items = self.items_of(units)
        return 1.0 if items is None else len(items) / self.data.batch_size
