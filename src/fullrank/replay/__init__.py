"""Replay: tables of packed transitions, sampled by position."""

from fullrank.replay.layout import Layout
from fullrank.replay.table import Sample, Table

__all__ = ["Layout", "Sample", "Table"]
