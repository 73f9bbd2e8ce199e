"""Names in a registry, independent of the modules imported before."""

from typing import Any

from fullrank.common.registry import Registry


def shipped(registry: Registry[Any]) -> list[str]:
    """Names of the library's own classes, without those of the fault laboratory or tests."""
    return [name for name in registry if registry.get(name).__module__.startswith("fullrank.")]
