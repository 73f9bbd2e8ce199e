"""Status, code and configuration of a run, as its clients see them.

A run that has ended has its status in its directory: no service need run any more.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum, auto
from pathlib import Path
from statistics import median
from typing import ClassVar

from pydantic import ConfigDict

from fullrank.algorithms import Unit
from fullrank.common.errors import FullrankError
from fullrank.common.schema import BOUNDED, Index, Ordinal
from fullrank.common.types import JSON, LearnerId, Matrix
from fullrank.config.toml import read_config
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec
from fullrank.runs.ending import lasting_caveats, read_ending
from fullrank.runs.identity import read_identity
from fullrank.runs.progress import SMOOTHED
from fullrank.runs.record import IterationRecord
from fullrank.runs.scalars import RETURN, STEPS, STEPS_PER_S, WIN_RATE, means
from fullrank.runs.time_budget import bottleneck, spent
from fullrank.runs.verdicts import Verdicts


class RunState(StrEnum):
    """Phase of a run."""

    STARTING = auto()
    RUNNING = auto()
    STALLED = auto()
    FINISHED = auto()
    FAILED = auto()
    """Ended by an error that a restart does not cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerStatus:
    """An attached learner."""

    learner: Index
    host: str
    rows: tuple[Index, ...]
    """Rows held; none for a spare."""
    answered: bool
    """True if one of its rows has arrived in the current iteration."""
    silent_s: float
    """Seconds since its last message or heartbeat."""
    quarantined: str
    """Reason of its quarantine; empty without one."""
    fingerprint: str
    maps_table: bool
    """True if it gathers minibatches from the mapped table; otherwise they are sent to it."""
    batch_bytes: Ordinal
    """Bytes of the rows of its last minibatch; 0 before."""
    shares_memory: bool
    """True if sections and vectors lie in shared memory; otherwise they are sent."""
    spare: str = ""
    """Why it can hold no row; empty if it can."""

    def activity(self, now: "RunStatus") -> str:
        """One word for the learner's activity, or why it has none, given the run's status."""
        if self.quarantined:
            return f"quarantined: {self.quarantined}"
        if not self.rows:
            if self.spare:
                return f"spare: {self.spare}"
            return "spare" if self.fingerprint else "joining"
        if not now.round_s:
            return "idle"
        return "answered" if self.answered else "awaited"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """A collector as a container that learns."""

    played: Ordinal
    """Episodes that it has played since it was connected."""
    handed_over: Ordinal
    """Those of them that travel to replay."""
    updates: Ordinal
    """Updates that its head has taken."""
    published: Ordinal
    """Updates that the head has taken that the other containers have."""
    divergence: float
    """Divergence of its policy from the mean of all, in its last update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorStatus:
    """An attached collector."""

    collector: Ordinal
    host: str
    fingerprint: str
    spare: str
    """Why it is assigned no block; empty if it may be."""
    blocks: Ordinal
    """Blocks that it has played since it was connected."""
    block: tuple[Ordinal, Index] | None
    """Iteration and number of the block that it plays; None while it is idle."""
    playing_s: float
    """Seconds since that block was assigned to it."""
    lag: Ordinal
    """Updates between the parameters that it acts with and the current ones."""
    silent_s: float
    """Seconds since its last message or heartbeat."""
    failed: str
    """Why the last block failed that did, or the container began anew; empty otherwise."""
    block_s: float = 0.0
    """Mean duration of its blocks, seconds; 0 before the first."""
    idle: float = 0.0
    """Share of its time in which it had no block, in [0, 1]."""
    reassigned: Ordinal = 0
    """Blocks assigned to it that another collector played, too."""
    stale: Ordinal = 0
    """Blocks of it that were not accepted, because their parameters were too old."""
    container: ContainerStatus | None = None
    """Its facts as a container; None where collectors are none."""

    @property
    def activity(self) -> str:
        """Describe the collector's activity, or why it is idle."""
        if self.spare:
            return f"spare: {self.spare}"
        if self.block is not None:
            iteration, block = self.block
            return f"block {block} of {iteration} for {self.playing_s:.1f} s"
        return "idle" if self.fingerprint else "joining"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksStatus:
    """Totals over all collectors of a term."""

    played: Ordinal
    """Blocks that collectors have played."""
    reassigned: Ordinal
    """Blocks assigned to another collector, too, because they were overdue."""
    lost: Ordinal
    """Blocks whose collector was lost while it played them."""
    failed: Ordinal
    """Blocks that an environment's error has failed."""
    waiting: Ordinal
    """Blocks without an answer."""
    block_s: float
    """Mean duration of a block, seconds; 0 before the first."""
    awaited_s: float
    """Seconds for which the run has waited for blocks."""

    def __str__(self) -> str:
        return (
            f"blocks: {self.played} played, {1e3 * self.block_s:.1f} ms each, {self.reassigned} "
            f"reassigned, {self.lost} lost with their collector, {self.failed} failed; the run "
            f"waited {self.awaited_s:.1f} s for blocks"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Status of a run at one moment; by default of one whose controller does not answer yet."""

    run: str = ""
    term: Ordinal = 0
    epoch: Ordinal = 0
    state: RunState | str = RunState.STARTING
    """Its phase; ``unknown (99)`` for one of a later version."""
    message: str = ""
    """The reason for which it waits, or has failed."""
    exit_code: Index = 0
    """Exit code of the error by which it has failed."""
    committed: Ordinal = 0
    """Iterations committed, of ``iterations``."""
    iterations: Ordinal = 0
    rank: Ordinal = 0
    """Rank of the rows received in the current iteration, of ``units``."""
    units: Ordinal = 0
    """Number of units, M."""
    unit_list: tuple[Unit, ...] = ()
    """The M units, by index."""
    round_s: float = 0.0
    """Seconds since the first assignment of the current iteration; 0 between iterations."""
    caveats: tuple[str, ...] = ()
    """Guarantees that the run does not give."""
    verdicts: tuple[str, ...] = ()
    """Learners that were found wrong and, after them, condemned iterations, the oldest first."""
    learners: tuple[LearnerStatus, ...] = ()
    collectors: tuple[CollectorStatus, ...] = ()
    playing: str = ""
    """Wait of the run for blocks, or of collectors for an update; empty if there is none."""
    blocks: BlocksStatus | None = None
    """Totals over all collectors; None without any."""

    __pydantic_config__: ClassVar[ConfigDict] = BOUNDED

    @property
    def awaited(self) -> list[LearnerId]:
        """Learners whose rows have not arrived in the current iteration."""
        return [status.learner for status in self.learners if status.rows and not status.answered]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A run at one moment with its last iterations: each audience is shown a projection of it."""

    now: RunStatus
    records: Sequence[IterationRecord] = ()
    """The last iterations; shares of late learners are of all of them."""

    @property
    def recent(self) -> Sequence[IterationRecord]:
        """The iterations over which numbers are averaged."""
        return self.records[-SMOOTHED:]

    def numbers(self) -> dict[str, float]:
        """Means of recent iterations by tag."""
        return means(self.recent)

    def env_steps(self) -> float | None:
        """Environment steps until the last iteration; None where they are not counted."""
        return self.records[-1].statistics.get(STEPS) if self.records else None

    def phases_s(self) -> dict[str, float]:
        """Mean seconds of each phase of an iteration."""
        return {phase: s / len(self.recent) for phase, s in spent(self.recent).items()}

    def traffic_bytes(self) -> dict[str, float]:
        """Mean bytes between controller and learners in an iteration, by kind."""
        total: Counter[str] = Counter()
        for record in self.recent:
            total.update(record.bytes_sent)
            total.update(record.bytes_received)
        return {kind: size / len(self.recent) for kind, size in total.items()}

    def round_s(self) -> float | None:
        """Median duration of a round, seconds; None before the first."""
        return median(record.round_s for record in self.recent) if self.recent else None

    def late(self, learner: LearnerId) -> float:
        """Share of the iterations that did not wait for a learner."""
        late = sum(learner in record.late for record in self.records)
        return late / len(self.records) if self.records else 0.0

    def facts(self) -> JSON:
        """The status for programs and pages; unknown numbers are null."""
        numbers, phases_s = self.numbers(), self.phases_s()
        longest = bottleneck(phases_s)
        return {
            **asdict(self.now),
            "learners": [
                asdict(each) | {"state": each.activity(self.now), "late": self.late(each.learner)}
                for each in self.now.learners
            ],
            "collectors": [asdict(each) | {"state": each.activity} for each in self.now.collectors],
            "return_mean": numbers.get(RETURN),
            "win_rate": numbers.get(WIN_RATE),
            "round_median_s": self.round_s(),
            "agent_updates_per_s": numbers.get("agent_updates_per_s"),
            STEPS: self.env_steps(),
            STEPS_PER_S: numbers.get(STEPS_PER_S),
            "phases_s": phases_s,
            "bytes": self.traffic_bytes(),
            "bottleneck": None if longest is None else asdict(longest) | {"text": str(longest)},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStatus:
    """The planner's forecast for a code."""

    code: str
    mean_s: float
    cautious_s: float
    """One standard error above the mean, by which codes are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStatus:
    """The planner's last decision."""

    code: str
    reason: str
    forecasts: tuple[ForecastStatus, ...]

    __pydantic_config__: ClassVar[ConfigDict] = BOUNDED


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodeInUse:
    """C and the holders of its rows."""

    epoch: Ordinal
    name: str
    parameters: JSON
    matrix: Matrix
    tolerance: Ordinal
    certificate: str
    holders: dict[int, LearnerId]
    """Row to learner; rows of learners that left are missing."""
    plan: PlanStatus | None
    """None unless the code is chosen by measured times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Configuration and agents of a run."""

    run: str
    version: str
    config: RunConfig
    agents: tuple[AgentSpec, ...]


def ended_status(run_dir: Path) -> RunStatus | None:
    """The status of the run in a directory; None unless it is finished or has failed.

    Raises:
        Malformed: Its ``run.json`` is damaged.
    """
    ending = read_ending(run_dir)
    if ending is None:
        return None
    facts = read_identity(run_dir)
    try:
        iterations = read_config(run_dir).iterations
    except FullrankError:  # it failed before it had a configuration
        iterations = 0
    return RunStatus(
        run=facts.get("run", ""),
        term=facts.get("term", 0),
        state=RunState(ending.state),
        message=ending.reason,
        exit_code=ending.exit_code,
        committed=ending.committed,
        iterations=iterations,
        caveats=tuple(lasting_caveats(run_dir)),
        verdicts=tuple(Verdicts(run_dir).lines),
    )
