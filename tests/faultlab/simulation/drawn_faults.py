"""Faults of a simulated run, drawn from its seed."""

import asyncio
import os
from pathlib import Path

from tests.faultlab.outcome import FaultOutcome
from tests.faultlab.simulation.collector import CollectorBehaviour
from tests.faultlab.simulation.learner import LearnerBehaviour
from tests.faultlab.simulation.link import LinkFaults

from fullrank.common.failpoints import arm
from fullrank.common.seeding import stream
from fullrank.config.tree import RunConfig
from fullrank.runs.checkpoint import STATE, saved

FAILPOINTS = (
    "term.raised",
    "warmup.played",
    "transitions.played",
    "transitions.appended",
    "rows.written",
    "row.assigned",
    "row.arrived",
    "round.decided",
    "journal.written",
    "journal.synced",
    "update.applied",
    "iteration.published",
    "iteration.repeated",
    "checkpoint.state_written",
    "checkpoint.complete",
    "checkpoint.renamed",
    "checkpoint.pruned",
    "journal.pruned",
)
STORED = ("store.written", "store.checkpointed")
"""Further failpoints of a run with a store."""
FAULTY = 0
"""The one learner that may compute wrong vectors and whose messages may be corrupted; with
colluders, the first of them."""
ALONE = tuple(
    behaviour for behaviour in LearnerBehaviour if behaviour is not LearnerBehaviour.COLLUDE
)
"""Behaviours of the faulty learner, unless it lies together with others."""
WRONG = (LearnerBehaviour.WRONG_VECTOR, LearnerBehaviour.WRONG_DIGEST)
HONEST = tuple(behaviour for behaviour in ALONE if behaviour not in WRONG)
LYING = 0.5
"""Share of the iterations in which colluders lie, all of them alike."""


class DrawnFaults:
    """Faults of the machines, links and files of one run.

    Args:
        outcome: Its seed keys every draw; injected faults are added to it.
        config: Configuration of the run. Its ``audit.byzantine`` first learners lie together, and
            with a store the machine of the controller may be lost.

    Attributes:
        draws: Keys all faults but those of single links.
        intensity: Scale of all fault probabilities, in [0, 1).
        sybils: Number of attached streams that claim another numeric fingerprint and agree on the
            same wrong updates, one more than there are learners, or none.
        links: Faults of each learner's link.
        collector_links: Faults of each collector's link.
    """

    def __init__(self, outcome: FaultOutcome, config: RunConfig) -> None:
        learners, collectors = config.learners, config.collectors.count
        self._outcome, self._colluders = outcome, config.audit.byzantine
        self._failpoints = FAILPOINTS + (STORED if config.store.url else ())
        self.draws = stream(outcome.seed, "misfortunes")
        self.intensity = self.draws.random()
        attacked = stream(outcome.seed, "sybils").random() < 0.2
        self.sybils = learners + 1 if attacked else 0
        self.links = [self._draw_link_faults(learner) for learner in range(learners + self.sybils)]
        self.collector_links = [
            self._draw_line_of_collector(collector) for collector in range(collectors)
        ]
        self._ended = self._checkpoint_corrupted = False

    def _draw_link_faults(self, learner: int) -> LinkFaults:
        draws = stream(self._outcome.seed, "weather", learner)
        intensity = self.intensity * draws.random(3) * (draws.random(3) < 0.5)
        return LinkFaults(
            draws=draws,
            duplicated=0.1 * intensity[0],
            reordered=0.1 * intensity[1],
            corrupted=0.1 * intensity[2] if learner == FAULTY else 0.0,
        )

    def _draw_line_of_collector(self, collector: int) -> LinkFaults:
        draws = stream(self._outcome.seed, "line", collector)
        return LinkFaults(draws=draws, duplicated=0.05 * self.intensity * draws.random())

    def collector_behaviour(self, collector: int) -> CollectorBehaviour:
        """Draw the behaviour of a collector on its next block."""
        draws = self.collector_links[collector].draws
        if self._ended or draws.random() > 0.5 * self.intensity:
            return CollectorBehaviour.PLAY
        behaviour = list(CollectorBehaviour)[int(draws.integers(len(CollectorBehaviour)))]
        if behaviour is not CollectorBehaviour.PLAY:
            self.record(f"collector {collector}: {behaviour.name.lower()}")
        return behaviour

    def learner_behaviour(self, learner: int, iteration: int) -> LearnerBehaviour:
        """Draw the behaviour of a learner on the assignment of an iteration."""
        draws = self.links[learner].draws
        if learner < self._colluders and self._lies(iteration):
            self.record(f"learner {learner} lies about iteration {iteration}")
            return LearnerBehaviour.COLLUDE
        if self._ended or draws.random() > 0.5 * self.intensity:
            return LearnerBehaviour.OK
        choices = ALONE if learner == FAULTY else HONEST
        return choices[int(draws.integers(len(choices)))]

    def _lies(self, iteration: int) -> bool:
        """True if the colluders lie about an iteration, whichever of them is asked."""
        drawn = stream(self._outcome.seed, "lie", iteration).random()
        return not self._ended and bool(drawn < LYING)

    def arm(self) -> None:
        """Arm a failpoint of the next term, or none."""
        if not self._ended and self.draws.random() < 0.8:
            arm(str(self.draws.choice(self._failpoints)), int(self.draws.integers(1, 5)))

    def damage(self, run_dir: Path, point: str) -> None:
        """Inject the file damage that a crash of the machine may cause."""
        if point == "journal.written":  # and not synced
            segments = (run_dir / "journal").iterdir()
            newest = max(segments, key=lambda path: path.stem.partition("-")[::-1])
            size = newest.stat().st_size - int(self.draws.integers(1, 40))
            os.truncate(newest, size)
            self.record(f"{newest.name} truncated")
        kept = saved(run_dir / "checkpoints")
        if len(kept) > 1 and not self._checkpoint_corrupted and self.draws.random() < 0.2:
            self._checkpoint_corrupted = True
            content = bytearray((kept[0] / STATE).read_bytes())
            content[int(self.draws.integers(len(content)))] ^= 1
            (kept[0] / STATE).write_bytes(content)
            self.record(f"checkpoint {kept[0].name} corrupted")

    def partition(self) -> None:
        """Partition some learners from the controller for a while."""
        until = asyncio.get_running_loop().time() + self.draws.exponential(3.0)
        for number, faults in enumerate(self.links):
            if self.draws.random() < 0.5:
                self.record(f"learner {number} partitioned until {until:.1f}")
                faults.partitioned_until = until
        for number, faults in enumerate(self.collector_links):
            if self.draws.random() < 0.5:
                self.record(f"collector {number} partitioned until {until:.1f}")
                faults.partitioned_until = until

    def end(self) -> None:
        """End all faults."""
        self.record("faults end")
        self._ended = True
        arm("", 0)
        for faults in (*self.links, *self.collector_links):
            faults.clear()

    def record(self, fault: str) -> None:
        """Add an injected fault to the outcome, with its virtual time."""
        now = asyncio.get_running_loop().time()
        self._outcome.faults.append(f"{now:7.3f} {fault}")
