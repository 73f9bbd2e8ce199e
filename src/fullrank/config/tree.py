"""The configuration tree: every key, its unit, its bounds and its default, and nothing else.

A dataclass here is a TOML table. ``[environment]``, ``[algorithm]``, ``[code]`` and
``[stragglers]`` name a registered class; their other keys, ``params``, are that class's fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

from fullrank.common.types import JSON
from fullrank.config.faults import Fault

Count: TypeAlias = Annotated[int, Field(ge=1)]
NonNegative: TypeAlias = Annotated[int, Field(ge=0)]
Duration: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Seconds, positive."""


def _address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be host:port, for example 127.0.0.1:50051 (port 0: any free one)")
    return value


Address: TypeAlias = Annotated[str, AfterValidator(_address)]
OptionalAddress: TypeAlias = Annotated[str, AfterValidator(lambda value: value and _address(value))]
"""Empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """A registered class and its parameters."""

    name: str
    """Name under which the class is registered."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The table's other keys: fields of the class called ``name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings:
    """What the agents live in."""

    name: str = "cooperative_navigation"
    """Registered environment, or ``package.module:factory`` of a PettingZoo environment."""
    agents: NonNegative = 3
    """M; 0 asks for the environment's own number, as does naming another environment."""
    copies: Count = 4
    """E, copies stepped together."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The table's other keys: fields of the environment called ``name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """How transitions are collected."""

    steps: Count = 25
    """Environment steps per iteration and copy."""
    warmup: NonNegative = 25_600
    """Transitions collected before the first iteration."""
    warmup_copies: Count = 64
    """Copies stepped together during the warm-up."""
    lag: Literal[0, 1] = 0
    """1: collect with the policies of one iteration ago, while the update runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How minibatches are drawn from replay."""

    method: Literal["uniform", "prioritised"] = "uniform"
    """``uniform``: all transitions alike; ``prioritised``: those with large rewards more often."""
    priority_gain: Annotated[float, Field(gt=0, le=2**20)] = 1.0
    """With ``prioritised`` a transition in which the largest reward of an agent, in magnitude, is r
    counts 1 + floor(gain r) times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The replay service."""

    address: Address = "127.0.0.1:0"
    """Where the others find it."""
    listen: OptionalAddress = ""
    """Where it listens if that is not ``address``, as behind a name that a cluster gives it."""
    capacity: Count = 1_000_000
    """Transitions held; the oldest go first."""
    capacity_bytes: Count = 16 * 2**30
    """Bytes of transitions held, if that limit is reached before `capacity`."""
    acknowledge: Literal["memory", "fsync"] = "memory"
    """When transitions count as stored: what `memory` takes survives any end of the process, what
    `fsync` takes also that of the machine."""
    deadline_s: Duration = 30.0
    """Longest wait for one answer, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The controller service and its patience."""

    address: Address = "127.0.0.1:0"
    """Where the learners find it."""
    listen: OptionalAddress = ""
    """Where it listens if that is not ``address``, as behind a name that a cluster gives it."""
    undecodable: Literal["wait", "recode", "fail"] = "recode"
    """What to do when the deadline passes before the received rows decode, or when what came is
    corrupt; ``recode``: learners that have nothing to do compute what is missing, or so much again
    that whoever was wrong can be left out."""
    inexact: Literal["commit", "fail"] = "fail"
    """What to do when every row has come and the decode still cannot be exact."""
    deadline_s: Duration = 60.0
    """Deadline of the first rounds, seconds; later ones follow from measured times."""
    deadline_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 5.0
    """Deadline of later rounds, in multiples of the 99th percentile of the last round times."""
    least_deadline_s: Duration = 5.0
    """No later round's deadline is shorter, seconds; less would only measure a busy machine."""
    stuck_after_s: Duration = 600.0
    """Longest that anything but waiting for learners may take; what was measured shortens it, to no
    less than ``deadline_s``. Then the controller writes its stacks and ends, seconds."""
    min_tolerance: NonNegative = 0
    """Below this many losses that could still be borne, the code is made anew."""
    heartbeat_s: Duration = 2.0
    """Time between a learner's heartbeats, seconds."""
    lost_after_s: Duration = 10.0
    """Silence after which a learner counts as lost, seconds."""
    join_deadline_s: Duration = 120.0
    """Longest wait for the first learners to join, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """The controller's port for those who watch the run."""

    address: Address = "127.0.0.1:0"
    """Where they find it."""
    listen: OptionalAddress = ""
    """Where it listens if that is not ``address``, as behind a name that a cluster gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """The page that shows runs live."""

    address: Address = "127.0.0.1:8050"
    """Where it is served, in plain HTTP; beyond loopback `tls.allow_plaintext` must say so."""
    runs: tuple[str, ...] = ()
    """Runs to show: directories, or `host:port` of monitors; empty: that of `monitor.address`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """What a learner says of itself."""

    domain: str = ""
    """With what it fails, largest failure domain first: ``zone/host``; empty: this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """Health of every service, learners too, on an address of its own."""

    address: OptionalAddress = ""
    """Where grpc.health.v1 is served in plain text; empty: not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Mutual TLS between the services, and towards whoever looks at them or changes them."""

    certificates: str = ""
    """Folder that `fullrank certs init` wrote; a service reads its own role's; empty: no TLS."""
    allow_plaintext: bool = False
    """Listen beyond loopback without TLS: who reaches a port may read, steer and spoil the run."""
    sidecar: bool = False
    """Learners dial a straggler proxy, which holds a learner's certificate, not a controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSettings:
    """The straggler sidecar, a proxy before the controller that makes learners late on purpose.

    Its delay model is the table [stragglers] of its own configuration.
    """

    address: Address = "127.0.0.1:0"
    """Where learners find it instead of the controller."""
    control: Address = "127.0.0.1:0"
    """Where it serves StragglerService, health and reflection."""
    faults: tuple[Fault, ...] = ()
    """Tables such as `{kind = "hold", learners = [1], iterations = [3]}`; see the straggler lab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSettings:
    """How a learner computes."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where updates are computed."""
    threads: Count = 1
    """torch threads per process."""
    emulate_unit_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Pretend that a unit takes this long: compute, then sleep up to load x this, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Checks of what learners computed, beyond those before every commit."""

    every: NonNegative = 100
    """Every so many iterations all learners finish and report, and the controller computes a unit
    itself; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Periodic checkpoints."""

    every: Count = 100
    """Iterations between checkpoints."""
    keep: Count = 3
    """Checkpoints kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where metrics go besides ``metrics.jsonl``."""

    sinks: tuple[str, ...] = ("tensorboard",)
    """Names of registered sinks: `tensorboard`, `wandb`; one that cannot be opened is left out."""
    prometheus: OptionalAddress = ""
    """Where every service serves its metrics to Prometheus, in plain HTTP; empty: not at all. With
    port 0 each takes any free one and writes it to `services/NAME-metrics.json` of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Every draw follows from it."""
    iterations: Count = 2000
    """Iterations to commit."""
    learners: NonNegative = 0
    """N; 0 asks for as many as the code needs for the environment's agents."""
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    algorithm: PluginSettings = field(default_factory=lambda: PluginSettings(name="maddpg"))
    code: PluginSettings = field(default_factory=lambda: PluginSettings(name="cyclic"))
    stragglers: PluginSettings = field(default_factory=lambda: PluginSettings(name="none"))
    collect: CollectSettings = field(default_factory=CollectSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    monitor: MonitorSettings = field(default_factory=MonitorSettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    learner: LearnerSettings = field(default_factory=LearnerSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    sidecar: SidecarSettings = field(default_factory=SidecarSettings)
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)


def as_tables(settings: Any) -> JSON:
    """A settings dataclass as nested tables, ``params`` beside the other keys."""
    table: JSON = {}
    for name in (each.name for each in fields(settings)):
        value = getattr(settings, name)
        if name == "params":
            table.update(value)
        else:
            table[name] = _plain(value)
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return as_tables(value) if is_dataclass(value) else value
