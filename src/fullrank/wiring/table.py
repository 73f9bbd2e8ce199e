"""Size and rules of a run's table of transitions."""

from fullrank.algorithms import (
    DataMode,
    Problem,
)
from fullrank.audit.ledger import WINDOW
from fullrank.common.errors import ConfigError
from fullrank.config.tree import RunConfig
from fullrank.replay.intake import Arrival
from fullrank.replay.pace import Pace
from fullrank.wiring.training import Training


def capacity_of(config: RunConfig, training: Training) -> int:
    """Return the number of transitions that replay holds within both of its limits.

    Raises:
        ConfigError: The capacity is below the warm-up.
    """
    settings, row_bytes = config.replay, 4 * training.problem.row_size
    warmup = training.collector.warmup
    capacity = min(settings.capacity, settings.capacity_bytes // row_bytes)
    if not capacity:
        raise ConfigError(
            f"replay.capacity_bytes = {settings.capacity_bytes} is less than one transition of "
            f"{row_bytes} bytes; raise it"
        )
    if capacity < warmup:
        raise ConfigError(
            f"replay.capacity_bytes = {settings.capacity_bytes} holds {capacity} transitions of "
            f"{row_bytes} bytes, fewer than collect.warmup = {warmup}; raise it to "
            f"{warmup * row_bytes} or lower collect.warmup"
        )
    return capacity


def audit_period(config: RunConfig, data: DataMode) -> int:
    """Iterations between two audits; 0 for none, as where learners draw samples of their own."""
    return config.audit.every if data.exact else 0


def spare_rows(config: RunConfig, training: Training) -> int:
    """Rows that replay keeps beyond its capacity, so that withdrawn iterations sample alike.

    They cover the iteration that is gathered while the one before is not durable yet, those for
    which a report may be late and, before them, those from one audit to the next or, without
    audits, from one checkpoint to the next.
    """
    problem, steps = training.problem, config.collect.steps
    if config.collect.mode != "inline" or problem.episodes is not None:
        steps = max(steps, 1 + training.collector.horizon)
    period = audit_period(config, problem.data) or config.checkpoint.every
    withdrawn = 1 + (period + WINDOW if problem.data.exact else 0)
    ahead = config.collect.window if config.collect.mode == "free" else 0
    return (withdrawn * config.environment.copies + ahead) * steps


def arrival_rules(config: RunConfig, problem: Problem, *, first: int) -> Arrival:
    """Return the rules of a table that collectors fill.

    Args:
        config: The configuration.
        problem: Layout of its rows.
        first: Iteration that is to begin.
    """
    collect = config.collect
    pace = Pace(
        updates_per_episode=0.0 if config.collectors.containers else 1 / config.environment.copies,
        slack=0,
        window=collect.window,
        warmup=collect.warmup_episodes,
        max_lag=collect.max_lag,
        first=first,
    )
    return Arrival(episodes=problem.episodes, pace=pace)
