"""Configured runs, and runs on real services."""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fullrank.cli.processes import ensure_alive, services
from fullrank.config.layers import load
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.runs.record import METRICS, IterationRecord, follow

WATCH_S = 0.01
"""Period at which commits are looked for."""
SETTINGS: Mapping[str, float] = MappingProxyType(
    {
        "environment.copies": 4,
        "collect.steps": 25,
        "algorithm.batch_size": 1024,
        "algorithm.hidden": 64,
        "algorithm.learning_rate": 0.01,
        "algorithm.target_rate": 0.01,
    }
)
"""Settings of [Wang21], and of its authors' [DARL1N], where Fullrank's defaults differ."""


def configured(
    *overrides: str, options: Mapping[str, Any] | None = None, topology: str | None = None
) -> RunConfig:
    """A run of settings ``key=value`` and of options; the surroundings have no say."""
    return load(environ={}, options=options, overrides=overrides, topology=topology).check().config


def observe(
    config: RunConfig, *, told: Callable[[Path], None] = lambda run_dir: None
) -> list[tuple[float, IterationRecord]]:
    """Train on local services; return iterations with when each was seen, in seconds.

    Args:
        config: The run.
        told: Takes the run directory once the services have ended.
    """
    seen: list[tuple[float, IterationRecord]] = []
    with tempfile.TemporaryDirectory(prefix="fullrank-") as scratch:
        run_dir = Path(scratch)
        (run_dir / "config.toml").write_text(to_toml(config))
        processes = services(run_dir, learners=config.learners, collectors=config.collectors.count)
        with processes as started:
            records = follow(run_dir / METRICS)
            while len(seen) < config.iterations:
                ensure_alive(started)
                committed = next(records)
                seen += [(time.monotonic(), record) for record in committed]
                time.sleep(WATCH_S)
        told(run_dir)
    return seen
