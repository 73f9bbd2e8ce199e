"""Algorithms: one file each, reading like its paper."""

from fullrank.algorithms.base import (
    Algorithm,
    AlgorithmConfig,
    Dimensions,
    IndependentAlgorithm,
    IndependentAlgorithmConfig,
    LocalAlgorithmConfig,
    Section,
    algorithms,
    recipe_in,
)

__all__ = [
    "Algorithm",
    "AlgorithmConfig",
    "Dimensions",
    "IndependentAlgorithm",
    "IndependentAlgorithmConfig",
    "LocalAlgorithmConfig",
    "Section",
    "algorithms",
    "recipe_in",
]
