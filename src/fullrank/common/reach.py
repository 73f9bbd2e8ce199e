"""Marks of settings: local to a machine, or portable with a run."""

from enum import Enum
from typing import Annotated, TypeAlias, TypeVar

T = TypeVar("T")


class SettingReach(Enum):
    """Where a setting holds, in the metadata of its type."""

    LOCAL = "local"
    """It names a resource of one machine: a path, an address, a device, processes."""
    PORTABLE = "portable"
    """It belongs to the run, wherever that goes on."""


Local: TypeAlias = Annotated[T, SettingReach.LOCAL]
Portable: TypeAlias = Annotated[T, SettingReach.PORTABLE]
