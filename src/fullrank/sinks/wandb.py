"""Weights & Biases (extra ``fullrank[wandb]``), configured by WANDB_PROJECT and its like."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.record import IterationRecord
from fullrank.runs.scalars import scalars
from fullrank.sinks.base import register


@register("wandb")
@dataclass(frozen=True, slots=True)
class Wandb:
    """One W&B run for each run; a resumed run continues it."""

    def open(self, run_dir: Path, *, first_iteration: int, config: JSON) -> "WandbRun":
        """Begin or continue the W&B run.

        Raises:
            ConfigError: The package is not installed.
        """
        return _run(run_dir, "", config)

    def open_evaluations(self, run_dir: Path, *, first_iteration: int, config: JSON) -> "WandbRun":
        """Begin or continue a second W&B run, since a W&B run has a single writer.

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
    """Log to a W&B run.

    Args:
        run: The run that ``wandb.init`` returned.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, record: IterationRecord | EvaluationRecord) -> None:
        """Log the record's scalars at its iteration."""
        self._run.log(scalars(record), step=record.iteration)

    def close(self) -> None:
        """Finish the W&B run."""
        self._run.finish()
