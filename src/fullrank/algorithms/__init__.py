"""Algorithms, one file each, with losses stated as in the papers."""

from fullrank.algorithms.base import (
    Actor,
    Algorithm,
    AlgorithmConfig,
    DataMode,
    Gradients,
    Optimiser,
    Parameters,
    Player,
    Problem,
    Section,
    Unit,
    World,
    algorithms,
    register,
    world_of,
)

__all__ = [
    "Actor",
    "Algorithm",
    "AlgorithmConfig",
    "DataMode",
    "Gradients",
    "Optimiser",
    "Parameters",
    "Player",
    "Problem",
    "Section",
    "Unit",
    "World",
    "algorithms",
    "register",
    "world_of",
]
