"""Configurations of service runs under faults, and the results expected of them."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType

from fullrank.common.errors import FullrankError
from fullrank.common.seeding import stream
from fullrank.config.layers import load
from fullrank.config.tree import RunConfig
from fullrank.local import LocalRun
from fullrank.runs.checkpoint import newest
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.record import METRICS, follow
from fullrank.wiring.training import training_of

LEARNERS, COLLECTORS, LAG, MAX_LAG = 4, 3, 2, 6
ANYWHERE = "127.0.0.1:0"
UNIT_S = 0.2
"""Seconds that a unit takes, so that faults fall into every part of a round, and a service that is
started meanwhile comes before the last one."""
SETTINGS = (
    f"learners={LEARNERS}",
    "code.tolerance=1",
    "environment.copies=2",
    "collect.steps=9",  # episodes of 25 steps cross iterations
    "collect.warmup=128",
    "collect.warmup_copies=8",
    "algorithm.batch_size=32",
    "algorithm.hidden=16",
    "replay.capacity=20000",
    "checkpoint.every=7",
    f"compute.emulate_unit_s={UNIT_S}",
    "controller.deadline_s=5.0",
    "controller.heartbeat_s=0.3",
    "controller.lost_after_s=1.5",
    "metrics.sinks=[]",
    f"controller.listen={ANYWHERE}",
    f"replay.listen={ANYWHERE}",
    f"sidecar.address={ANYWHERE}",
)


class Mode(StrEnum):
    """Mode of collection; the values are those of ``collect.mode``."""

    INLINE = "inline"
    KEYED = "keyed"
    FREE = "free"

    @classmethod
    def of(cls, seed: int) -> "Mode":
        """Return the mode of the run of a seed."""
        return list(cls)[seed % len(cls)]


PLAYED: Mapping[Mode, Sequence[str]] = MappingProxyType(
    {
        Mode.INLINE: (),
        Mode.KEYED: (
            f"collectors.count={COLLECTORS}",
            "collect.mode=keyed",
            "collect.block=1",
            f"collect.lag={LAG}",
        ),
        Mode.FREE: (
            f"collectors.count={COLLECTORS}",
            "collect.mode=free",
            "collect.block=1",
            "collect.window=10",
            "collect.warmup_episodes=6",
            f"collect.max_lag={MAX_LAG}",
            "checkpoint.keep=1000000",
        ),
    }
)
"""Further settings by mode."""


STORED, GUARDED = 0.5, 0.5
"""Shares of the seeds whose runs have a store, and whose runs bear a learner that lies."""
GUARD = ("audit.byzantine=1", "code.tolerance=2")
"""Settings under which one learner may lie while another one is late."""


def is_stored(seed: int) -> bool:
    """Tell if the run of a seed can lose the controller's machine."""
    return bool(stream(seed, "stored").random() < STORED)


def is_guarded(seed: int) -> bool:
    """Tell if nothing wrong may be committed in the run of a seed, not even for a while."""
    return bool(stream(seed, "guarded").random() < GUARDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The fault-free run in one process."""

    digests: Sequence[str]
    """Update digest of each iteration."""
    parameters: str
    """Digest of the final parameters."""
    mode: Mode
    """Mode of the run that is compared."""

    def differences(self, run_dir: Path) -> list[str]:
        """Violations in the parameters of a run's last checkpoint."""
        training = training_of(configured(len(self.digests), mode=self.mode))
        try:
            training.trainer.load(newest(run_dir / CHECKPOINTS).arrays)
        except FullrankError as error:
            return [f"durable: {error}"]
        finally:
            training.collector.close()
        if training.trainer.digest() != self.parameters:
            return ["exact: the parameters differ from those of the fault-free run"]
        return []


@cache
def fault_free_run(iterations: int, *, mode: Mode = Mode.INLINE) -> Reference:
    """Run the reference without faults, services or collectors."""
    run = LocalRun(configured(iterations, mode=mode), coded=False)
    digests = [iteration.update_digest for iteration in run]
    return Reference(digests=digests, parameters=run.parameter_digest(), mode=mode)


def free_run_violations(run_dir: Path) -> list[str]:
    """Violations of a finished run whose collectors played freely, and which has no reference.

    Every iteration is recomputed from table and journal, and no episode was older than its bound.
    """
    command = [sys.executable, "-m", "fullrank", "verify", str(run_dir)]
    verified = subprocess.run(command, check=False, capture_output=True, text=True)
    found = []
    if verified.returncode or "not recomputed" in verified.stdout:
        found.append(f"exact: {(verified.stdout + verified.stderr).strip()}")
    records = next(follow(run_dir / METRICS))
    lag = max((int(record.statistics["lag_max"] or 0) for record in records), default=0)
    if lag > MAX_LAG:
        found.append(f"fresh: an episode was played with parameters {lag} versions old")
    return found


def configured(iterations: int, *settings: str, mode: Mode) -> RunConfig:
    """Return the configuration of a run."""
    overrides = [f"iterations={iterations}", *SETTINGS, *PLAYED[mode], *settings]
    return load(None, environ={}, overrides=overrides).check().config
