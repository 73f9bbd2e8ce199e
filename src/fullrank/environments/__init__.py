"""Environments: E copies of M agents stepped as arrays."""

from fullrank.environments.base import (
    AgentSpec,
    Continuous,
    Discrete,
    Environment,
    MultiDiscrete,
    Step,
    environments,
    make_environment,
    variant_of,
)

__all__ = [
    "AgentSpec",
    "Continuous",
    "Discrete",
    "Environment",
    "MultiDiscrete",
    "Step",
    "environments",
    "make_environment",
    "variant_of",
]
