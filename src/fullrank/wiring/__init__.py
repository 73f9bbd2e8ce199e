"""Construction of the objects that every driver needs, from the configuration tree."""

from typing import TYPE_CHECKING, Any

from fullrank.config.code import code_of
from fullrank.wiring.plugins import (
    algorithm_config_of,
    algorithm_of,
    delays_of,
    environment_of,
    max_variance_of,
)

if TYPE_CHECKING:
    from fullrank.wiring.training import (
        Training,
        audit_period,
        block_player_of,
        capacity_of,
        initial_algorithm,
        pace_of,
        plan_of,
        refuse_free,
        spare_rows,
        training_of,
    )

__all__ = [
    "Training",
    "algorithm_config_of",
    "algorithm_of",
    "audit_period",
    "block_player_of",
    "capacity_of",
    "code_of",
    "delays_of",
    "environment_of",
    "initial_algorithm",
    "max_variance_of",
    "pace_of",
    "plan_of",
    "refuse_free",
    "spare_rows",
    "training_of",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for, after settings have been judged."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fullrank.wiring import training

    return getattr(training, name)
