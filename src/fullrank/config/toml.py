"""Configuration as TOML text, as stored in every run directory."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from fullrank.common.errors import FullrankError
from fullrank.common.foreign import FORMAT
from fullrank.common.types import JSON
from fullrank.config.collection import PACING
from fullrank.config.elsewhere import read_run
from fullrank.config.layers import resolve
from fullrank.config.leaves import flatten, read_layer
from fullrank.config.tree import RunConfig, as_tables

DECISIVE = ("seed", "environment", "algorithm", "collect")
"""Tables whose settings determine the bits of a run, beside those that determine samples."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(config: RunConfig) -> str:
    """The whole tree and its format version; ``from_toml`` is the inverse."""
    return _document({"format": FORMAT, **as_tables(config)})


def from_toml(text: str | bytes, *, origin: str = "config.toml") -> RunConfig:
    """Read the text that ``to_toml`` wrote.

    Raises:
        ConfigError: The text is not TOML, or holds an unknown key or an impossible value.
        VersionMismatch: The text is of a later format.
    """
    return resolve([read_layer(text, origin)]).config


def read_config(directory: Path) -> RunConfig:
    """The configuration stored with a run; see ``read_run``.

    Args:
        directory: The run's directory.

    Raises:
        FullrankError: It cannot be read.
    """
    return read_run(directory, os.environ).config


def config_digest(config: RunConfig) -> str:
    """BLAKE2b-128 of the settings that determine the committed bits of a run, hexadecimal.

    Two configurations with the same digest train the same parameters, so that either can resume a
    run of the other: codes, learners, stragglers, addresses and deadlines may differ. Its table
    must have room for the rows that ``checkpoint.every``, ``audit.every`` and ``collect.window``
    keep beyond the capacity.
    """
    whole = as_tables(config)
    drawn = {  # determines which transitions a minibatch contains
        "capacity": config.replay.capacity,
        "capacity_bytes": config.replay.capacity_bytes,
        "sampler": config.sampling.method,
        "priority_gain": config.sampling.priority_gain,
    }
    ignored = (*PACING, *(("mode", "block") if config.collect.mode == "inline" else ()))
    for key in ignored:  # as before there were modes; and what is in the table is given
        del whole["collect"][key]
    decisive = {key: whole[key] for key in DECISIVE} | drawn
    return hashlib.blake2b(_document(decisive).encode(), digest_size=16).hexdigest()


def settings_digest(config: RunConfig) -> str:
    """BLAKE2b-128 of all settings, hexadecimal."""
    return hashlib.blake2b(to_toml(config).encode(), digest_size=16).hexdigest()


def why_another_run(stored: str | bytes, config: RunConfig) -> str:
    """Name the setting that makes a run differ from that of a directory, and the remedy.

    Args:
        stored: The text of the directory's ``config.toml``.
        config: A configuration with another ``config_digest``.
    """
    try:
        old, new = (_decisive(settings) for settings in (from_toml(stored), config))
    except FullrankError:
        old, new = {}, {}
    changed = [key for key in old if key in new and old[key] != new[key]]
    if changed or not new.keys() - old.keys():
        key = changed[0] if changed else ""
        what = f"{key} = {_value(old[key])}, not {_value(new[key])}" if key else "other settings"
        return (
            f"holds a run with {what}; choose another --run-dir, or resume it with its own "
            "config.toml"
        )
    added = ", ".join(f"{key} = {_value(new[key])}" for key in sorted(new.keys() - old.keys()))
    return (
        f"holds a run of a version of Fullrank without {added}; resume it with that version, or "
        "start anew in another directory"
    )


def _decisive(config: RunConfig) -> dict[str, object]:
    """The settings that determine a run's bits, by dotted key."""
    whole = as_tables(config)
    chosen = {key: whole[key] for key in (*DECISIVE, "replay", "sampling")}
    return {".".join(key): leaf.value for key, leaf in flatten(chosen, "").items()}


def _document(table: JSON) -> str:
    lines = [_line(key, value) for key, value in table.items() if not isinstance(value, Mapping)]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{_key(key)}]", *(_line(*item) for item in value.items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: object) -> str:
    return f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(_line(*item) for item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else _text(str(value))


def _text(value: str) -> str:
    # JSON's escapes are TOML's, except that TOML wants DEL escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
