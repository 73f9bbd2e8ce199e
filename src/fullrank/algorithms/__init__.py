"""Algorithms, one file each, with losses stated as in the papers."""

from fullrank.algorithms.base import (
    Actor,
    Algorithm,
    AlgorithmConfig,
    DataMode,
    EnvironmentSpec,
    Gradients,
    Optimiser,
    Parameters,
    Player,
    Problem,
    Section,
    Unit,
    algorithms,
    environment_spec,
    register,
)

__all__ = [
    "Actor",
    "Algorithm",
    "AlgorithmConfig",
    "DataMode",
    "EnvironmentSpec",
    "Gradients",
    "Optimiser",
    "Parameters",
    "Player",
    "Problem",
    "Section",
    "Unit",
    "algorithms",
    "environment_spec",
    "register",
]
