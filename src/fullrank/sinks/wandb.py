"""Weights & Biases, by the extra ``fullrank[wandb]``; WANDB_PROJECT and its like say where to."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON
from fullrank.runs.evaluations import Evaluated
from fullrank.runs.record import IterationRecord, scalars
from fullrank.sinks.base import register


@register("wandb")
@dataclass(frozen=True, slots=True)
class Wandb:
    """One W&B run a run, which a resumed run goes on with."""

    def open(self, run_dir: Path, *, first_iteration: int, config: JSON) -> "WandbRun":
        """Begin or go on.

        Raises:
            ConfigError: The package is not installed.
        """
        return _run(run_dir, "", config)

    def open_evaluations(self, run_dir: Path, *, first_iteration: int, config: JSON) -> "WandbRun":
        """Begin or go on with a W&B run of their own, for a W&B run has one writer.

        Raises:
            ConfigError: The package is not installed.
        """
        return _run(run_dir, "-evaluations", config)


def _run(run_dir: Path, suffix: str, config: JSON) -> "WandbRun":
    try:
        import wandb
    except ImportError:
        raise ConfigError("W&B is not installed: pip install 'fullrank[wandb]'") from None
    run = str(json.loads((run_dir / "run.json").read_text())["run"])
    names = {"id": run + suffix, "name": run_dir.name + suffix, "group": run}
    return WandbRun(wandb.init(config=config, dir=run_dir, resume="allow", **names))


class WandbRun:
    """Logs to a W&B run.

    Args:
        run: What ``wandb.init`` gave.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, record: IterationRecord | Evaluated) -> None:
        """Log the record's scalars at its iteration."""
        self._run.log(scalars(record), step=record.iteration)

    def close(self) -> None:
        """Finish."""
        self._run.finish()
