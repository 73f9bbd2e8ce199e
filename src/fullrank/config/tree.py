"""The configuration tree: every key with its unit, bounds and default.

Each dataclass is a TOML table. ``[environment]``, ``[algorithm]``, ``[code]`` and ``[stragglers]``
name a registered class; their other keys, ``params``, are the fields of that class.

Every table is marked local or portable, and settings that differ from their table have marks of
their own, some by their kind. Local settings of a configuration from elsewhere do not count
(``fullrank.config.elsewhere``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from fullrank.common.types import JSON, Local, Portable
from fullrank.config.collection import CollectorsSettings, CollectSettings, ContainerSettings
from fullrank.config.faults import Fault
from fullrank.config.values import (
    LOCAL,
    Address,
    Copies,
    Count,
    Device,
    Duration,
    Fingerprint,
    NonNegative,
    OptionalAddress,
    RunName,
    ServiceAddress,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """A registered class and its parameters."""

    name: str
    """Name under which the class is registered."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The table's other keys: fields of the registered class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings:
    """Environment of the agents."""

    name: str = "cooperative_navigation"
    """Registered name, or ``package.module:factory`` of a PettingZoo environment."""
    agents: NonNegative = 3
    """Number of agents M; 0, the default with any other environment: the environment's own."""
    copies: Copies = 200
    """Number of copies E that are stepped together; by default 4 of PettingZoo's and gymnasium's
    environments, whose copies are separate objects, and 8 for algorithms that learn from whole
    episodes."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The table's other keys: fields of the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """Sampling of minibatches from replay."""

    method: Literal["uniform", "prioritised"] = "uniform"
    """``uniform``: every transition or episode with equal probability; ``prioritised``: those with
    large rewards more often, or with large temporal differences where ``algorithm.td_errors``
    stores them."""
    priority_gain: Annotated[float, Field(gt=0, le=2**20)] = 1.0
    """Gain of ``prioritised``: a transition in which r is the largest magnitude of an agent's
    reward, or of its temporal difference, counts 1 + floor(gain r) times, and an episode as often
    as all its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """Addresses, capacity and durability of the replay service."""

    address: ServiceAddress = LOCAL
    """Address at which controller and learners call it: ``local``, a unix socket on this host that
    only its user can reach and that is found through the run directory, or ``host:port``. A service
    elsewhere on this host dials ``unix:path`` as announced."""
    listen: OptionalAddress = ""
    """Address to listen on if it differs from ``address``, as behind a cluster's service name."""
    capacity: Count = 1_000_000
    """Limit on the number of transitions; the oldest are overwritten."""
    capacity_bytes: Count = 16 * 2**30
    """Limit on the bytes of transitions; the lower of both limits applies."""
    total_bytes: Local[Count] = 64 * 2**30
    """Limit of a replay service on the bytes of the tables of all its runs, when full; the table of
    a further run is refused beyond it. It is no share of the free disk, which would admit a run on
    one day and refuse it on the next."""
    acknowledge: Literal["memory", "fsync"] = "memory"
    """Durability of acknowledged transitions: with ``memory`` they survive the end of the process,
    with ``fsync`` also that of the machine."""
    deadline_s: Duration = 30.0
    """Deadline of a call, seconds. Controller and learners then say so and wait on, for as long as
    replay is away."""


LEAST_DEADLINE_S = 5.0
"""Lower bound on deadlines that follow from measured times, seconds."""
JOIN_DEADLINES, STUCK_DEADLINES = 2.0, 10.0
"""Waits for joining learners, and for a phase that may be stuck, in deadlines of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Controller service: its addresses, deadlines and policies."""

    address: ServiceAddress = LOCAL
    """Address at which learners call it, as ``replay.address`` is given."""
    listen: OptionalAddress = ""
    """Address to listen on if it differs from ``address``, as behind a cluster's service name."""
    device: Device = "cpu"
    """Device on which the controller plays and steps, named as ``compute.device`` is; of a list the
    first. What it recomputes, it computes on ``compute.device``. A run in one process uses that
    for both, unless this setting is given."""
    undecodable: Literal["wait", "recode", "hedge", "fail"] = "recode"
    """Policy when the deadline passes before the received rows decode, or when a row is corrupt;
    ``recode``: idle learners compute the missing units, or enough of them again to leave a faulty
    learner out; ``hedge``: they compute missing units long before the deadline, too, as soon as
    recent rounds tell that a round then ends sooner. Where learners share cores, that takes cores
    from others. With ``wait`` and ``fail``, ``code.name = "auto"`` chooses among codes that survive
    a loss."""
    inexact: Literal["commit", "fail"] = "fail"
    """Policy when every row has arrived and the decode still is not exact. At the deadline
    ``commit`` does not wait for further rows either; with ``fail``, ``undecodable`` decides, whose
    ``recode`` then has every unit computed by itself."""
    deadline_s: Duration = 60.0
    """Deadline of the first rounds, and of ranks that wait for another, seconds; later deadlines of
    rounds are five times the 99th percentile of recent round times, and at least 5 s. Twice as long
    the controller waits for the first learners to join, and for the last ones to hear of the run's
    end. A phase that waits for no learner and takes ten times as long, or, once measured, 20 times
    as long as usual but no less than this, ends the controller with its stacks."""
    heartbeat_s: Duration = 2.0
    """Period of a learner's heartbeats, seconds."""
    lost_after_s: Duration = 10.0
    """Least time without a heartbeat after which a learner counts as lost, seconds; where they come
    late, as from a starved host, it is five times their usual interval."""

    @property
    def least_deadline_s(self) -> float:
        """Lower bound on later deadlines; a shorter one would react to the load of the machine."""
        return min(LEAST_DEADLINE_S, self.deadline_s)

    @property
    def stuck_after_s(self) -> float:
        """Limit on the duration of a phase that does not wait for learners, before measurements."""
        return STUCK_DEADLINES * self.deadline_s

    @property
    def join_deadline_s(self) -> float:
        """Deadline for the first learners to join, and for the last to hear of the run's end."""
        return JOIN_DEADLINES * self.deadline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """Monitor port of the controller."""

    address: ServiceAddress = LOCAL
    """Address at which monitors call it, as ``replay.address`` is given."""
    listen: OptionalAddress = ""
    """Address to listen on if it differs from ``address``, as behind a cluster's service name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """Web page that shows runs live."""

    address: Address = "127.0.0.1:8050"
    """Address of the page, in plain HTTP; beyond loopback it requires ``tls.allow_plaintext``."""
    runs: Local[tuple[str, ...]] = ()
    """Runs to show: directories, or ``host:port`` of monitors; empty: the run at
    ``monitor.address``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """Settings that each learner has for itself."""

    domain: Local[str] = ""
    """Failure domains of the learner, largest first: ``zone/host``; empty: this machine's name."""
    drain_s: Annotated[float, Field(ge=0.0)] = 10.0
    """Time that a learner takes to finish its row when it is told to stop, seconds; then others
    compute the row. Shorter than the notice of its machine's loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """Health service of every process, learners included, on an address of its own."""

    address: OptionalAddress = ""
    """Address that serves grpc.health.v1 in plain text; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Mutual TLS between services, monitors and administrators."""

    certificates: Local[str] = ""
    """Directory made by ``fullrank certs init``, in which a service reads its role's certificate;
    empty: no TLS."""
    allow_plaintext: bool = False
    """Allow listening beyond loopback without TLS: any peer may then read, steer and spoil the
    run."""
    learner: Annotated[int, Field(ge=-1)] = -1
    """Number of the learner whose own certificate this process shows, of ``fullrank certs init
    --learners``; -1: the one that all learners share."""
    sidecar: bool = False
    """Learners dial a straggler sidecar, whose certificate is a learner's, not a controller's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSettings:
    """Straggler sidecar: a proxy before the controller that delays learners on purpose.

    The table [stragglers] of its own configuration is its delay model.
    """

    address: ServiceAddress = LOCAL
    """Address that learners dial instead of the controller's."""
    control: ServiceAddress = LOCAL
    """Address of StragglerService, health and reflection."""
    faults: tuple[Fault, ...] = ()
    """Injected faults: tables such as ``{kind = "hold", learners = [1], iterations = [3]}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSettings:
    """Computation in learners, and emulated times."""

    device: Device = "auto"
    """Device that computes updates: ``cpu``, ``cuda``, ``cuda:K``, or ``auto``, which is ``cuda``
    where there is a device, Triton can compile kernels, and a device was measured to be quicker
    than a CPU, for the hand-written updates of ``maddpg``, else ``cpu``. With ``cuda``, replica j
    of a learner computes on device j mod their number, with a list such as ``cuda:0,cuda:2`` on its
    entry j mod the list's length. A learner with ``auto`` computes on the kind of device that the
    run names."""
    threads: Local[Annotated[int, Field(ge=1, le=2**12)]] = 1
    """Number of torch threads per process, at most 4,096."""
    emulate_unit_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Emulated computing time of a unit, seconds: a learner sleeps until units x this have passed
    since it began to compute."""
    emulate_step_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Emulated time of an environment step, seconds: a process sleeps as long in each step of its
    copies, as if each of them were a game in a process of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """Groups of ranks: processes that divide an update of a run in one process."""

    count: Local[Count] = 1
    """G, number of ranks; bits do not depend on it. Services have no ranks."""
    split: Literal["agents", "transitions"] = "agents"
    """Division of an update. ``agents``: each rank computes and steps its agents, and the ranks
    exchange policies. ``transitions``: each rank computes micro-batches of all agents, and the
    ranks add their gradients up, as in multi-GPU MADDPG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Audits of learners and collectors, beyond the checks before every commit."""

    every: NonNegative = 100
    """Mean period of audits, in iterations: every learner finishes and reports, and the controller
    recomputes a unit, both in an iteration that learners cannot foresee; 0: never."""
    byzantine: NonNegative = 0
    """Number of learners that may lie together: nothing is committed that rests on the word of as
    few. f + 1 learners in different failure domains compute every unit alike, or the controller
    computes it; a tolerance of f lets no learner be late. Replicas of one process count apart
    unless ``learner.domain`` is set."""
    spot: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Probability with which the controller computes a unit itself before it is committed; k lies
    are caught with probability 1 - (1 - spot)^k."""
    blocks: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Probability with which the controller plays a block of a collector itself before it accepts
    it; k false blocks are caught with probability 1 - (1 - blocks)^k. Blocks of containers, and of
    collectors of another numeric fingerprint, are believed, and counted in a caveat."""
    fingerprint: Fingerprint = "controller"
    """Numeric fingerprint of the run, fixed when it begins; learners with others are spares.
    ``controller``: that of the controller; ``learners``: that of most learners at the first epoch,
    for clusters in which none computes as the controller does; 16 letters, as ``fullrank run
    status`` shows them: this one, from the next iteration on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Checkpoints of the controller's committed state."""

    every: Count = 100
    """Period of checkpoints, in iterations."""
    keep: Count = 3
    """Number of checkpoints kept; the journal reaches back as far, and with it ``fullrank
    verify``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Store of the run, from which its controller goes on on any machine."""

    url: str = ""
    """``s3://bucket/prefix``, ``gs://``, ``az://``, or a directory on another volume, with
    credentials from the environment alone; empty: the run is kept in its directory only."""
    lag_s: Duration = 1.0
    """Time whose iterations are written together, seconds, and the least time between two writes. A
    run that can be computed again goes on meanwhile, and waits once it is twice as far ahead, or
    has 256 MiB of updates that are not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Destinations of metrics besides ``metrics.jsonl``."""

    sinks: Local[tuple[str, ...]] = ("tensorboard",)
    """Registered sinks: ``tensorboard``, ``wandb``; a sink that cannot be opened is dropped."""
    greedy_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.02
    """Largest share of the time in which ``fullrank train`` and ``run resume`` play the references
    and, without exploration, the policies of checkpoints; 0: they play none while the run goes
    on."""
    prometheus: OptionalAddress = ""
    """Address at which every service serves Prometheus metrics in plain HTTP; empty: none. With
    port 0 each takes a free port and writes it to ``services/NAME-metrics.json`` of the run."""


MOST_LEARNERS = 2**16
"""Upper bound on the number of learners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Configuration of one run."""

    name: Local[RunName] = ""
    """Name of the run, with which its id begins: in metrics, logs, tables and files."""
    seed: Portable[Annotated[int, Field(ge=0, lt=2**63)]] = 0
    """Seed of every random draw."""
    iterations: Portable[Count] = 12_000
    """Number of iterations to commit; by default 2,000 for algorithms that learn from whole
    episodes."""
    learners: Portable[Annotated[int, Field(ge=0, le=MOST_LEARNERS)]] = 0
    """Number of learners N, at most 65,536; 0: as many as the code needs for a row each. Fewer hold
    several rows each."""
    environment: Portable[EnvironmentSettings] = field(default_factory=EnvironmentSettings)
    algorithm: Portable[PluginSettings] = field(
        default_factory=lambda: PluginSettings(name="maddpg")
    )
    code: Portable[PluginSettings] = field(default_factory=lambda: PluginSettings(name="cyclic"))
    stragglers: Portable[PluginSettings] = field(
        default_factory=lambda: PluginSettings(name="none")
    )
    collect: Portable[CollectSettings] = field(default_factory=CollectSettings)
    collectors: Portable[CollectorsSettings] = field(default_factory=CollectorsSettings)
    containers: Portable[ContainerSettings] = field(default_factory=ContainerSettings)
    sampling: Portable[SamplingSettings] = field(default_factory=SamplingSettings)
    replay: Portable[ReplaySettings] = field(default_factory=ReplaySettings)
    controller: Portable[ControllerSettings] = field(default_factory=ControllerSettings)
    monitor: Local[MonitorSettings] = field(default_factory=MonitorSettings)
    dashboard: Local[DashboardSettings] = field(default_factory=DashboardSettings)
    learner: Local[LearnerSettings] = field(default_factory=LearnerSettings)
    health: Local[HealthSettings] = field(default_factory=HealthSettings)
    tls: Local[TlsSettings] = field(default_factory=TlsSettings)
    sidecar: Local[SidecarSettings] = field(default_factory=SidecarSettings)
    compute: Portable[ComputeSettings] = field(default_factory=ComputeSettings)
    ranks: Portable[RankSettings] = field(default_factory=RankSettings)
    audit: Portable[AuditSettings] = field(default_factory=AuditSettings)
    checkpoint: Portable[CheckpointSettings] = field(default_factory=CheckpointSettings)
    store: Local[StoreSettings] = field(default_factory=StoreSettings)
    metrics: Local[MetricsSettings] = field(default_factory=MetricsSettings)


def as_tables(settings: Any) -> JSON:
    """A settings dataclass as nested tables, ``params`` beside the other keys."""
    table: JSON = {}
    for name in (attribute.name for attribute in fields(settings)):
        value = getattr(settings, name)
        if name == "params":
            table.update(value)
        else:
            table[name] = _plain(value)
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return as_tables(value) if is_dataclass(value) else value
