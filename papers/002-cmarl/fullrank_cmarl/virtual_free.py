"""Free collection in virtual time: collectors or containers play while the centraliser learns.

Episodes, intake, minibatches and gradients are those of the services; their durations are numbers.
"""

from dataclasses import dataclass, field

from fullrank.config.tree import RunConfig
from fullrank.replay.draw_window import Reach
from fullrank.replay.intake import Fate, Intake, WrittenEpisode
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
from fullrank.wiring import Training, arrival_rules, capacity_of
from fullrank_cmarl.virtual_learning import Agenda, VirtualCourse, VirtualDurations, VirtualHistory


@dataclass(slots=True)
class VirtualCollector:
    """A collector or a container, and its undelivered episodes."""

    number: int
    terms: PlayTerms
    """The newest parameters that it has been sent."""
    container: Container | None = None
    """State of a collector that is a container."""
    learns: bool = False
    """True if it plays with the head of its container, and learns it."""
    blocks: int = 0
    """Blocks that were begun."""
    pending: list[WrittenEpisode] = field(default_factory=list)
    """Episodes that have arrived and wait to be stored."""
    blocked_since_s: float | None = None
    """Since when it waits to begin a block; None while it plays."""
    blocked_s: float = 0.0
    """Time that it has waited."""
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
        self._intake = Intake(self._table, arrival_rules(config, training.problem, first=0))
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

    def history(self, *, until_s: float) -> VirtualHistory:
        """Run until the configured iterations are committed, or the virtual time is over."""
        for collector in self._collectors:
            self._receive(collector, collector.terms)
            self._begin_block(collector)
            if collector.learns:
                self._learn(collector)
        while self._course.iteration < self._config.iterations:
            if not self._agenda.next(until_s=until_s):
                break
        end_s = until_s if self._course.iteration < self._config.iterations else self._agenda.now_s
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
        block = config.collect.block
        block_s = self._durations.block_s(
            played.outcomes.lengths,
            actors=block * len(self._collectors),
            key=(config.seed, collector.number, key.block),
        )
        version = terms.publication.version
        self._agenda.after(block_s, lambda: self._finish_block(collector, key, played, version))

    def _finish_block(
        self, collector: VirtualCollector, key: BlockKey, played: PlayedBlock, version: int
    ) -> None:
        self._course.reach(self._agenda.now_s)
        self._course.played(played.outcomes.lengths.tolist())
        episodes = played.episodes
        travelling = range(len(episodes))
        self._facts["played_bytes"] += sum(episode.nbytes for episode in episodes)
        if collector.container is not None:
            travelling = collector.container.store(episodes).tolist()
        first = key.block * self._config.collect.block + 1
        sent = [
            WrittenEpisode(key.iteration, first + number, version, episodes[number])
            for number in travelling
        ]
        self._facts["travelled_bytes"] += sum(episode.rows.nbytes for episode in sent)
        self._written.append(played.outcomes)
        self._agenda.after(self._durations.wire_s, lambda: self._arrive(collector, sent))
        collector.blocked_since_s = self._agenda.now_s
        self._settle()

    def _arrive(self, collector: VirtualCollector, sent: list[WrittenEpisode]) -> None:
        collector.pending += sent
        self._settle()

    def _settle(self) -> None:
        """Store admissible episodes, begin an update if one is due, and resume collectors."""
        while self._store() or self._begin_update():
            pass
        for collector in self._collectors:
            if collector.blocked_since_s is None:
                continue
            if len(collector.pending) <= self._config.collect.block:
                collector.blocked_s += self._agenda.now_s - collector.blocked_since_s
                collector.blocked_since_s = None
                self._begin_block(collector)

    def _store(self) -> bool:
        stored = False
        for collector in self._collectors:
            if count := self._intake.admitted(collector.pending):
                outcomes = self._intake.store(collector.pending[:count])
                del collector.pending[:count]
                self._facts["stale"] += sum(outcome.fate is Fate.STALE for outcome in outcomes)
                stored = True
        return stored

    def _begin_update(self) -> bool:
        """Compute an update, which is committed when its time has passed."""
        iteration, draws = self._course.iteration, self._intake.draws
        if self._updating or iteration == self._config.iterations:
            return False
        draws.asked(iteration)
        if not draws.may_draw(iteration):
            return False
        reach = draws.draw(newest=self._table.capacity)
        sample = self._training.trainer.sample(iteration, tail=reach.tail, head=reach.head)
        targets = self._compute(self._table.minibatch(sample), iteration=iteration)
        draws.gathered(iteration)
        self._updating = True
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
        self._agenda.after(self._durations.wire_s, lambda: self._publish(terms))
        self._settle()

    def _publish(self, terms: PlayTerms) -> None:
        for collector in self._collectors:
            self._receive(collector, terms)

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
        self._agenda.after(update_s, lambda: self._learn(collector))
