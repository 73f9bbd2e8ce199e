"""Replay: tables of packed transitions, sampled by position."""

from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.layout import Layout
from fullrank.replay.mapped_table import MappedTable
from fullrank.replay.pace import RateLimiter
from fullrank.replay.ring_file import RingFile
from fullrank.replay.samplers import EpisodeDraw, Priority, Sample
from fullrank.replay.storage import MemoryStorage, Storage
from fullrank.replay.table import TABLE, Table

__all__ = [
    "TABLE",
    "EpisodeDraw",
    "EpisodeLayout",
    "Layout",
    "MappedTable",
    "MemoryStorage",
    "Priority",
    "RateLimiter",
    "RingFile",
    "Sample",
    "Storage",
    "Table",
]
