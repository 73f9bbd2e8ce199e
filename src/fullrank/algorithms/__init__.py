"""Algorithms, one file each, with losses stated as in the papers."""

from fullrank.algorithms.base import (
    AlgorithmConfig,
    EnvironmentSpec,
    algorithms,
    environment_spec,
    register,
)
from fullrank.algorithms.problem import DataMode, Problem, Section, Unit
from fullrank.algorithms.roles import Actor, Algorithm, Gradients, Optimiser, Parameters, Player

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
