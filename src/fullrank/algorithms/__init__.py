"""Algorithms: one file each, its losses stated as in its paper."""

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
