"""Replay: tables of packed transitions, sampled by position."""

from fullrank.replay.layout import Layout
from fullrank.replay.ring_file import RingFile
from fullrank.replay.storage import Memory, Storage
from fullrank.replay.table import TABLE, Sample, Table

__all__ = ["TABLE", "Layout", "Memory", "RingFile", "Sample", "Storage", "Table"]
