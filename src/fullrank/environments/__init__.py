"""Environments: E copies of M agents stepped as arrays."""

from fullrank.environments.base import (
    AgentSpec,
    Continuous,
    Discrete,
    Environment,
    Step,
    environments,
    make_environment,
)

__all__ = [
    "AgentSpec",
    "Continuous",
    "Discrete",
    "Environment",
    "Step",
    "environments",
    "make_environment",
]
