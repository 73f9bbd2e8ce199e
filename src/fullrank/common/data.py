"""Data files beside the modules of a package."""

import tomllib
from importlib.resources import files
from typing import Any


def toml(package: str, name: str) -> dict[str, Any]:
    """A TOML file of a package, arrays as tuples."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    found: dict[str, Any] = _frozen(tomllib.loads(text))
    return found


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in value.items()}
    return value
