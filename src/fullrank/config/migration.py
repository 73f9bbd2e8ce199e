"""Configurations of earlier versions, with the keys of this one."""

from collections.abc import Mapping
from dataclasses import dataclass

from fullrank.config.elsewhere import portable, require
from fullrank.config.layers import Resolved, resolve
from fullrank.config.leaves import RENAMED, ConfigLayer, flatten, read_layer
from fullrank.config.toml import DECISIVE
from fullrank.config.tree import as_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A configuration under today's keys, and how it differs from the text that was read."""

    resolved: Resolved
    renamed: tuple[str, ...]
    """A line for each key that has another name now."""
    dropped: tuple[str, ...]
    """A line for each local setting that is dropped, since the run comes from elsewhere."""
    added: tuple[str, ...]
    """A line for each key in a table that determines bits, which did not exist."""


def migrated(text: str | bytes, *, origin: str, foreign: bool = False) -> Migration:
    """Read a configuration that an earlier version wrote.

    A setting that did not exist gets its default, with which this version does as the earlier one.

    Args:
        text: The text of a ``config.toml``.
        origin: Its path, for messages.
        foreign: True if the run comes from elsewhere, so that its local settings do not count.

    Raises:
        ConfigError: It is not TOML, or holds a key that was removed or an impossible value.
        VersionMismatch: It is of a later format.
    """
    layer: ConfigLayer = {}
    renamed, added = [], []
    for key, leaf in read_layer(text, origin).items():
        old = ".".join(key)
        new = _renamed(old)
        layer[tuple(new.split("."))] = leaf
        if new != old:
            renamed.append(f"{old} is called {new}")
    layer, dropped = portable(layer) if foreign else (layer, {})
    require(dropped, "stragglers.path", origin=origin)
    resolved = resolve([layer])
    known = {".".join(key) for key in layer}
    for key, leaf in flatten(as_tables(resolved.config), "").items():
        name = ".".join(key)
        if name not in known and key[0] in DECISIVE and not isinstance(leaf.value, Mapping):
            added.append(f"{name} = {leaf.value!r} is new")
    lines = [f"{key} = {value!r} of another machine is dropped" for key, value in dropped.items()]
    return Migration(
        resolved=resolved, renamed=tuple(renamed), dropped=tuple(lines), added=tuple(added)
    )


def _renamed(key: str) -> str:
    """Today's name of a dotted key."""
    for old, new in RENAMED.items():
        if key == old or key.startswith(f"{old}."):
            return new + key.removeprefix(old)
    return key
