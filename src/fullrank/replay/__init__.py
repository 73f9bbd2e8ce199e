"""Replay: tables of packed transitions, sampled by position."""

from fullrank.replay.layout import Layout
from fullrank.replay.table import TABLE, Sample, Table

__all__ = ["TABLE", "Layout", "Sample", "Table"]
