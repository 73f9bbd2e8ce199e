"""Environments of other packages that a configuration names, and the user's word for their code.

A registered environment is code that the user installed. An adapter imports and calls what the
configuration names, so that the run directory or the monitor of another could run any code in the
process of its reader. Such an environment is therefore made only at the user's own word: a
configuration file, an option, or an environment that the user has trained before, with the same
arguments, in the same place and with the same local code.
"""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from fullrank.common.errors import CodeRefused
from fullrank.common.text import plain
from fullrank.common.types import JSON
from fullrank.config import state
from fullrank.config.consent import (
    BY_NAME,
    FOLDER,
    Note,
    Recorder,
    Remembered,
    code_file,
    places_of,
    read_notes,
    word_file,
)
from fullrank.config.places import named, place_of
from fullrank.config.tree import EnvironmentSettings
from fullrank.environments import local_code
from fullrank.environments.base import ADAPTERS
from fullrank.environments.local_code import digest_of, guard

MOST_LISTED = 10
"""Most files that a message names."""


def remember(settings: EnvironmentSettings) -> None:
    """Keep the user's word for an environment; without a state directory it is not kept.

    From now on this process notes the local code that it loads. A process that runs remembered code
    alone has no word of its own, and keeps nothing.
    """
    call = _call(settings)
    if call is not None and not is_bound():
        _record(call)


def check_trusted(
    settings: EnvironmentSettings, *, origin: str, trusted: Collection[str] = ()
) -> None:
    """Refuse an environment of another package that only a configuration from elsewhere names.

    This process then loads the remembered local code alone, unless the user has given a word.

    Args:
        settings: The environment of that configuration.
        origin: Names the configuration in the message.
        trusted: Factories and ids that the user has named in this command.

    Raises:
        CodeRefused: The user has neither named the environment nor trained it with these arguments
            and this code.
    """
    call = _call(settings)
    if call is None:
        return
    if call["imports"] in trusted:
        _record(call)
        return
    place, folder = place_of(_module(call)), state.state_folder(FOLDER)
    if place is None or folder is None or not state.kept(word_file(folder, call, place)):
        raise _refused(origin, call, place, _why_unknown(call, folder))
    notes = read_notes(code_file(folder, place))
    if changed := _changed(_module(call), notes):
        why = f"where {_listed(changed)} changed since this user trained it"
        raise _refused(origin, call, place, why)
    policy = guard().policy
    if isinstance(policy, Recorder):
        return
    old = policy if isinstance(policy, Remembered) else Remembered({}, ())
    digests = {file: note.digest for file, note in notes.items()}
    guard().policy = Remembered({**old.digests, **digests}, (*old.calls, call["imports"]))


def is_bound() -> bool:
    """Return whether this process runs remembered code alone, as those that it starts then must."""
    return local_code.is_guarded() and isinstance(guard().policy, Remembered)


def _record(call: JSON) -> None:
    """Keep a word, and note the local code that this process has loaded and will load."""
    place, folder = place_of(_module(call)), state.state_folder(FOLDER)
    if place is None or folder is None:
        guard().policy = None
        return
    state.keep(word_file(folder, call, place), {"call": call, "place": place})
    policy = guard().policy
    recorder = policy if isinstance(policy, Recorder) else Recorder({})
    guard().policy = recorder = recorder.of_also(code_file(folder, place))
    before = local_code.imported_before(_module(call))
    for file, digest in (before | guard().loaded).items():
        recorder.judge(file, digest)


def _call(settings: EnvironmentSettings) -> JSON | None:
    """Return the code that an adapter would import, and its arguments; None if registered."""
    if ":" in settings.name:
        return {"adapter": ADAPTERS[0], "imports": settings.name, "arguments": settings.params}
    if settings.name not in ADAPTERS:
        return None
    params = {"arguments": {}, **settings.params}
    imports = str(params.pop("factory", "") or params.pop("id", ""))
    return {"adapter": settings.name, "imports": imports, "arguments": params}


def _module(call: JSON) -> str:
    """The module that a call imports; ids without one are of packages that gymnasium knows."""
    module, colon, _ = str(call["imports"]).partition(":")
    return module if colon or call["adapter"] == ADAPTERS[0] else str(call["adapter"])


def _changed(module: str, notes: dict[str, Note]) -> list[str]:
    """The loaded files that have other bytes now, and those that the module would add to them."""
    own = module.partition(".")[0] in guard().programs  # which no record holds
    files: Iterable[str | None] = map(local_code.code_file, [] if own else local_code.find(module))
    first = {file for file in files if file is not None and not local_code.is_installed(file)}
    loaded = {file for file, note in notes.items() if note.loaded and os.path.lexists(file)}
    digests = {file: note.digest for file, note in notes.items()}
    return sorted(file for file in loaded | first if digest_of(Path(file)) != digests.get(file))


def _why_unknown(call: JSON, folder: Path | None) -> str:
    """Reason why no word counts."""
    if places := places_of(folder, call) if folder is not None else []:
        return f"and this user has trained that {' and that '.join(map(named, places))} alone"
    old = state.state_folder(BY_NAME)
    if old is not None and state.kept(old / f"{state.name_of(call)}.json"):
        return (
            "which an earlier version remembered by its name; code is remembered now, and this is "
            "asked once more"
        )
    return "which this user has not trained here"


def _refused(origin: str, call: JSON, place: JSON | None, why: str) -> CodeRefused:
    given = ", ".join(f"{key}={value!r}" for key, value in call["arguments"].items())
    where = f" {named(place)}" if place is not None else " from no place that Python searches"
    return CodeRefused(
        f"{origin} asks to import and call {call['imports']}({given}){where}, {why}; add --trust "
        f"{call['imports']} if you know this code"
    )


def _listed(files: list[str]) -> str:
    more = f" and {len(files) - MOST_LISTED} more" if len(files) > MOST_LISTED else ""
    return ", ".join(map(plain, files[:MOST_LISTED])) + more
