"""Places of an environment's code: real directories, and installed distributions."""

import platform
from contextlib import suppress
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path

from fullrank.common.text import plain
from fullrank.common.types import JSON
from fullrank.environments import local_code


def place_of(module: str) -> JSON | None:
    """Return where a module would be loaded from, without importing it; None if there is none.

    The directory is that in which the module's outermost package lies.
    """
    specs = local_code.find(module)
    if not specs:
        return None
    leaf = specs[-1]
    if (file := local_code.code_file(leaf)) is None:
        return None if leaf.loader is None else _python()
    if local_code.is_standard(file):
        return _python()
    depth = len(specs) + (leaf.submodule_search_locations is not None)
    root = Path(*Path(file).parts[:-depth])
    installed = _installed(specs[0].name, root) if local_code.is_installed(file) else None
    return installed or {"directory": str(root)}


def named(place: JSON) -> str:
    """Words for a place, after a noun."""
    if "directory" in place:
        return f"in {plain(place['directory'])}"
    return f"of {place['distribution']} {place['version']}"


def _python() -> JSON:
    return {"distribution": "Python", "version": platform.python_version()}


def _installed(package: str, root: Path) -> JSON | None:
    """The distribution that has installed a package below ``root``; None if none has."""
    with suppress(PackageNotFoundError):
        found = distribution(package)  # mostly of the same name; asking all takes 0.3 s
        if _has(found, package, root):
            return {"distribution": found.name, "version": found.version}
    for name in sorted(set(packages_distributions().get(package, []))):
        if _has(found := distribution(name), package, root):
            return {"distribution": found.name, "version": found.version}
    return None


def _has(found: Distribution, package: str, root: Path) -> bool:
    here = Path(str(found.locate_file(""))).resolve() == root
    names = {file.parts[0].partition(".")[0] for file in found.files or ()}
    return here and package in names
