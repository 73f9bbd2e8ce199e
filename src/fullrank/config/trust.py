"""Environments of other packages that a configuration names, and the user's word for them.

A registered environment is code that the user installed. An adapter imports and calls what the
configuration names, so that the run directory or the monitor of another could run any code in the
process of its reader. Such an environment is therefore made only at the user's own word: a
configuration file, an option, or an environment that the user has trained before. The last are
remembered outside all run directories, where no archive can write: one file each in
``$XDG_STATE_HOME/fullrank/environments``, named by a digest of the call.
"""

import hashlib
import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON
from fullrank.config.tree import EnvironmentSettings
from fullrank.environments.base import ADAPTERS


def remember(settings: EnvironmentSettings) -> None:
    """Keep the user's word for an environment; without a state directory it is not kept."""
    call = _call(settings)
    if call is None or (path := _remembered(call)) is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_text(path, json.dumps(call, indent=2, default=str) + "\n")


def check_trusted(
    settings: EnvironmentSettings, *, origin: str, trusted: Collection[str] = ()
) -> None:
    """Refuse an environment of another package that only a configuration from elsewhere names.

    Args:
        settings: The environment of that configuration.
        origin: Names the configuration in the message.
        trusted: Factories and ids that the user has named in this command.

    Raises:
        ConfigError: The user has neither named the environment nor trained it with these arguments.
    """
    call = _call(settings)
    if call is None or call["imports"] in trusted:
        return
    path = _remembered(call)
    if path is None or not _is_own(path):
        given = ", ".join(f"{key}={value!r}" for key, value in call["arguments"].items())
        raise ConfigError(
            f"{origin} asks to import and call {call['imports']}({given}), which this user has not "
            f"trained here; add --trust {call['imports']} if you know this code"
        )


def _call(settings: EnvironmentSettings) -> JSON | None:
    """Return the code that an adapter would import, and its arguments; None if registered."""
    if ":" in settings.name:
        return {"adapter": ADAPTERS[0], "imports": settings.name, "arguments": settings.params}
    if settings.name not in ADAPTERS:
        return None
    params = {"arguments": {}, **settings.params}
    imports = str(params.pop("factory", "") or params.pop("id", ""))
    return {"adapter": settings.name, "imports": imports, "arguments": params}


def _remembered(call: JSON) -> Path | None:
    """The file of a call that the user has vouched for; None without a home directory."""
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        state = configured if configured.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    text = json.dumps(call, sort_keys=True, default=str)
    name = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return state / "fullrank" / "environments" / f"{name}.json"


def _is_own(path: Path) -> bool:
    """Return whether this user has written the file."""
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False
