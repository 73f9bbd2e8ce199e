"""Names in a registry that do not depend on which modules were imported before."""

from typing import Any

from fullrank.common.registry import Registry


def shipped(registry: Registry[Any]) -> list[str]:
    """Names of the library's own classes, without those of a laboratory or a test."""
    return [name for name in registry if registry.get(name).__module__.startswith("fullrank.")]
