"""Algorithms: one file each, reading like its paper."""

from fullrank.algorithms.base import (
    Algorithm,
    AlgorithmConfig,
    Dimensions,
    Section,
    algorithms,
    make_algorithm,
)

__all__ = [
    "Algorithm",
    "AlgorithmConfig",
    "Dimensions",
    "Section",
    "algorithms",
    "make_algorithm",
]
