"""Free collection in virtual time: collectors or containers play while the centraliser learns.

Episodes, pace, minibatches and gradients are those of the services; their durations are numbers.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fullrank.common.types import FloatArray
from fullrank.config.tree import RunConfig
from fullrank.replay.pace import DrawWindow, Reach
from fullrank.replay.staging import AcceptedBlock
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.training.block_collection import FreeCollection
from fullrank.training.block_player import (
    BlockPlayer,
    PlayedBlock,
    PlayTerms,
    Publication,
    acting_sections,
)
from fullrank.training.blocks import BlockKey
from fullrank.training.centralised import Centralised, Targets
from fullrank.training.container import Container
from fullrank.training.episodes import Outcomes
from fullrank.wiring.training import Training, capacity_of, pace_of
from fullrank_papers.virtual import Agenda, VirtualCourse, VirtualDurations, VirtualHistory


class VirtualBlock(NamedTuple):
    """A block that waits to be accepted."""

    version: int
    episodes: int
    """Number of episodes that travel."""
    rows: FloatArray
    """Their rows."""


@dataclass(slots=True)
class VirtualCollector:
    """A collector or a container, and its blocks that are not accepted."""

    number: int
    terms: PlayTerms
    """The newest parameters that it has been sent."""
    container: Container | None = None
    """State of a collector that is a container."""
    learns: bool = False
    """True if it plays with the head of its container, and learns it."""
    blocks: int = 0
    """Blocks that were begun."""
    pending: list[VirtualBlock] = field(default_factory=list)
    """Blocks that have arrived and wait to be accepted."""
    blocked_since_s: float | None = None
    """Since when it waits to begin a block; None while it plays."""
    blocked_s: float = 0.0
    """Time that it has waited."""
    held_s: float = 0.0
    """Time for which updates have held the block that it plays."""
    taken_s: float = -1.0
    """Time of the newest trunk, or of the centraliser's policy, in a container."""


class FreeVirtualRun:
    """One run; ``history`` runs it.

    Args:
        config: Its collectors play, one if there are none.
        training: The centraliser.
        player: Plays all blocks.
        containers: Containers by number, as many as collectors; empty: plain collectors.
        course: Counts and evaluates.
        durations: Durations of steps, updates and wires.
    """

    def __init__(
        self,
        config: RunConfig,
        training: Training,
        player: BlockPlayer,
        containers: list[Container],
        *,
        course: VirtualCourse,
        durations: VirtualDurations,
    ) -> None:
        self._config, self._training, self._player = config, training, player
        self._course, self._durations = course, durations
        self._every_s = config.containers.every_s
        assert isinstance(training.collector.collection, FreeCollection)
        self._free = training.collector.collection
        capacity = capacity_of(config, training)
        self._table = Table(MemoryStorage(capacity, training.problem.row_size), capacity=capacity)
        self._window = DrawWindow(
            pace_of(config),
            capacity=capacity,
            newest=capacity,
            following=0,
            head=0,
            episodes=None,
        )
        gradients = training.algorithm.gradients
        self._compute = Centralised(training.problem, gradients, seed=config.seed).compute
        self._agenda, self._updating, self._written = Agenda(), False, list[Outcomes]()
        self._facts = dict.fromkeys(("played_bytes", "travelled_bytes", "stale", "heads"), 0.0)
        terms, learns = self._free.begin(0), bool(containers) and config.containers.learn
        self._collectors = [
            VirtualCollector(number, terms, container, learns)
            for number, container in enumerate(
                containers or [None] * max(1, config.collectors.count)
            )
        ]

    def history(self) -> VirtualHistory:
        """Run until the configured iterations are committed, or the last evaluation is made."""
        for collector in self._collectors:
            self._receive(collector, collector.terms)
            self._begin_block(collector)
            if collector.learns:
                self._begin_learning(collector)
        while self._course.iteration < self._config.iterations:
            if not self._agenda.next(until_s=self._course.until_s):
                break
        end_s = self._agenda.now_s
        if self._course.iteration < self._config.iterations:
            end_s = max(end_s, self._course.until_s)
        self._course.reach(end_s)
        blocked_s = sum(
            each.blocked_s + (0.0 if each.blocked_since_s is None else end_s - each.blocked_since_s)
            for each in self._collectors
        )
        share = blocked_s / (len(self._collectors) * end_s) if end_s else 0.0
        return self._course.history(**self._facts, blocked=share, seconds=end_s)

    def _receive(self, collector: VirtualCollector, terms: PlayTerms) -> None:
        """Give a collector newer parameters; a container takes them from time to time."""
        container, now_s = collector.container, self._agenda.now_s
        if container is None:
            collector.terms = terms
        elif collector.taken_s < 0 or now_s >= collector.taken_s + self._every_s:
            collector.terms, collector.taken_s = terms, now_s
            (network,) = terms.publication.sections.values()
            container.take_trunk(terms.publication.version, network)

    def _begin_block(self, collector: VirtualCollector) -> None:
        """Play a block, whose episodes are there when its time has passed."""
        terms, container, config = collector.terms, collector.container, self._config
        if container is not None:
            publication = terms.publication
            if collector.learns:
                (section,) = acting_sections(self._training.algorithm)
                sections = {section: container.learner.acting}
                publication = Publication(version=publication.version, sections=sections)
            terms = PlayTerms(publication=publication, env_steps=self._course.env_steps)
        key = BlockKey(collector.number + 1, collector.blocks)
        collector.blocks += 1
        played = self._player.play(key, terms)
        block_s = self._durations.block_s(
            played.outcomes.lengths, key=(config.seed, collector.number, key.block)
        )
        version = terms.publication.version
        self._agenda.after(block_s, lambda: self._finish_block(collector, key, played, version))

    def _finish_block(
        self, collector: VirtualCollector, key: BlockKey, played: PlayedBlock, version: int
    ) -> None:
        if collector.held_s:
            held_s, collector.held_s = collector.held_s, 0.0
            self._agenda.after(held_s, lambda: self._finish_block(collector, key, played, version))
            return
        self._course.reach(self._agenda.now_s)
        self._course.played(played.outcomes.lengths.tolist())
        episodes = played.episodes
        travelling = range(len(episodes))
        self._facts["played_bytes"] += sum(episode.nbytes for episode in episodes)
        if collector.container is not None:
            travelling = collector.container.store(episodes).tolist()
        rows = np.concatenate([played.rows[:0], *(episodes[number] for number in travelling)])
        sent = VirtualBlock(version, len(travelling), rows)
        self._facts["travelled_bytes"] += rows.nbytes
        self._written.append(played.outcomes)
        self._agenda.after(self._durations.wire_s, lambda: self._arrive(collector, sent))
        collector.blocked_since_s = self._agenda.now_s
        self._settle()

    def _arrive(self, collector: VirtualCollector, sent: VirtualBlock) -> None:
        if sent.episodes:
            collector.pending.append(sent)
        self._settle()

    def _settle(self) -> None:
        """Accept admissible blocks, begin an update if one is due, and resume collectors."""
        while self._store() or self._begin_update():
            pass
        for collector in self._collectors:
            if collector.blocked_since_s is None or (self._updating and self._durations.holds):
                continue
            if len(collector.pending) <= 1:
                collector.blocked_s += self._agenda.now_s - collector.blocked_since_s
                collector.blocked_since_s = None
                self._begin_block(collector)

    def _store(self) -> bool:
        stored, window = False, self._window
        for collector in self._collectors:
            while collector.pending:
                version, episodes, rows = collector.pending[0]
                if not window.admits(rows=len(rows), episodes=episodes):
                    break
                del collector.pending[0]
                stored = True
                if version < window.oldest:
                    self._facts["stale"] += episodes
                    continue
                self._table.append(window.head, rows)
                window.accept(AcceptedBlock(1, 0, version, len(rows), episodes, ""))
        return stored

    def _begin_update(self) -> bool:
        """Compute an update, which is committed when its time has passed."""
        iteration = self._course.iteration
        if self._updating or iteration == self._config.iterations:
            return False
        self._window.asked()
        if self._window.missing:
            return False
        tail, reach = self._table.tail, self._window.draw()
        sample = self._training.trainer.sample(iteration, tail=tail, head=reach.head)
        targets = self._compute(self._table.minibatch(sample), iteration=iteration)
        self._window.release()
        self._updating = True
        if self._durations.holds:
            for collector in self._collectors:
                playing = collector.blocked_since_s is None
                collector.held_s += self._durations.update_s * playing
        self._agenda.after(
            self._durations.update_s, lambda: self._commit(iteration, reach, targets)
        )
        return True

    def _commit(self, iteration: int, reach: Reach, targets: Targets) -> None:
        self._course.reach(self._agenda.now_s)
        self._free.drawn(iteration, reach, self._written)
        self._written = []
        self._training.trainer.apply(targets.updates, iteration=iteration)
        self._updating, self._course.iteration = False, iteration + 1
        terms = self._free.begin(iteration + 1)
        if self._durations.wire_s:
            self._agenda.after(self._durations.wire_s, lambda: self._publish(terms))
        else:
            self._publish(terms)
        self._settle()

    def _publish(self, terms: PlayTerms) -> None:
        for collector in self._collectors:
            self._receive(collector, terms)

    def _begin_learning(self, collector: VirtualCollector) -> None:
        """Begin an update of a container, which counts when its time has passed."""
        update_s = self._durations.container_update_s
        self._agenda.after(update_s, lambda: self._learn(collector))

    def _learn(self, collector: VirtualCollector) -> None:
        """Update a container again and again, and publish its head from time to time."""
        container, update_s = collector.container, self._durations.container_update_s
        assert container is not None
        if container.may_learn:
            container.update()
        before_s, now_s = self._agenda.now_s - update_s, self._agenda.now_s
        if now_s // self._every_s > before_s // self._every_s:
            self._facts["heads"] += container.is_sound
            container.publish()
        self._begin_learning(collector)
