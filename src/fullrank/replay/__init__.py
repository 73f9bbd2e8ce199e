"""Replay: tables of packed transitions, sampled by position."""

from fullrank.replay.layout import Layout
from fullrank.replay.rate_limiter import RateLimiter
from fullrank.replay.ring_file import RingFile
from fullrank.replay.samplers import Priority, Sample
from fullrank.replay.storage import Memory, Storage
from fullrank.replay.table import TABLE, Table

__all__ = [
    "TABLE",
    "Layout",
    "Memory",
    "Priority",
    "RateLimiter",
    "RingFile",
    "Sample",
    "Storage",
    "Table",
]
