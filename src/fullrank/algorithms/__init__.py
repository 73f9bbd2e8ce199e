"""Algorithms: one file each, reading like its paper."""

from fullrank.algorithms.base import Algorithm, Section, algorithms, make_algorithm

__all__ = ["Algorithm", "Section", "algorithms", "make_algorithm"]
