"""Environments of other packages that a configuration names, and the user's word for their code.

A registered environment is code that the user installed. An adapter imports and calls what the
configuration names, so that the run directory or the monitor of another could run any code in the
process of its reader. Such an environment is therefore made only at the user's own word: a
configuration file, an option, or an environment that the user has trained before, with the same
arguments, in the same place and with the same local code.

A word is a file of ``$XDG_STATE_HOME/fullrank/consent``, named by the digests of the call and of
its place: real directories, and installed distributions. A file of the place beside it has a line
for each local file of code.
"""

import hashlib
import json
import os
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path
from typing import NamedTuple, Self

from fullrank.common.durable import replace_text
from fullrank.common.errors import CodeRefused, FullrankError
from fullrank.common.foreign import read_regular
from fullrank.common.text import plain
from fullrank.common.types import JSON
from fullrank.config.tree import EnvironmentSettings
from fullrank.environments import local_code
from fullrank.environments.base import ADAPTERS
from fullrank.environments.local_code import SUFFIXES, digest_of, guard

LIMIT_BYTES = 2**26
"""Largest file that is read."""


def state_folder(name: str) -> Path | None:
    """Return a folder that no archive of a run can write to; None without a home directory."""
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        state = configured if configured.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "fullrank" / name


def digest_name(facts: object) -> str:
    """Return the digest that names the file of these facts."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def keep(path: Path, facts: JSON) -> None:
    """Write a file of facts; where there is no place for it, none is written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_text(path, json.dumps(facts, indent=2, default=str) + "\n")


def kept(path: Path) -> str:
    """Return the text of a file that this user has written; empty if there is none."""
    try:
        own = path.lstat().st_uid == os.geteuid()
        return read_regular(path, LIMIT_BYTES).decode(errors="replace") if own else ""
    except (OSError, FullrankError):
        return ""


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


FOLDER = "consent"
"""Folder of the words."""
MOST_BESIDE = 1_000
"""Most files of a folder that are noted beside those that are loaded."""


class Note(NamedTuple):
    """A file of code that the user has given the word for."""

    digest: str
    loaded: bool
    """False: it only lies beside a file that was loaded."""


NONE = Note("", loaded=False)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Notes the local code that runs at the user's own word, and what lies beside it.

    A run that is played, exported or drawn may import more of the same folder than its training.
    """

    notes: dict[Path, dict[str, Note]]
    """Notes by file, for the record of each place that the user has given the word for."""
    beside: dict[str, str] = field(default_factory=dict)
    """Digests of the files beside those that were loaded."""

    def judge(self, file: str, digest: str) -> None:
        """Note a file that is loaded; see ``CodePolicy``."""
        if file not in self.beside:
            self.beside.update({each: digest_of(Path(each)) for each in _beside(file)})
        for path, known in self.notes.items():
            found = {
                each: Note(seen, loaded=known.get(each, NONE).loaded)
                for each, seen in self.beside.items()
            } | {file: Note(digest, loaded=True)}
            new = {each: note for each, note in found.items() if known.get(each) != note}
            known.update(new)
            _append(path, new)

    def of_also(self, path: Path) -> Self:
        """Return a recorder that also notes in the record of another place."""
        return type(self)({path: read_notes(path), **self.notes})


@dataclass(frozen=True, slots=True)
class Remembered:
    """Refuses local code other than the user has given the word for before."""

    digests: Mapping[str, str]
    """Digest by file."""
    calls: tuple[str, ...]
    """The factories and ids that may run."""

    def judge(self, file: str, digest: str) -> None:
        """Refuse a file that is not remembered with these bytes; see ``CodePolicy``."""
        if self.digests.get(file) != digest:
            how = "changed" if file in self.digests else "is new"
            raise CodeRefused(
                f"{' or '.join(self.calls)} imports {plain(file)}, which {how} since this user "
                f"trained it; add --trust {self.calls[-1]} if you know this code"
            )


def word_file(folder: Path, call: JSON, place: JSON) -> Path:
    """The file of a word."""
    return folder / f"{digest_name(call)}-{digest_name(place)}.json"


def code_file(folder: Path, place: JSON) -> Path:
    """The record of the local code of a place."""
    return folder / f"{digest_name(place)}.jsonl"


def places_of(folder: Path, call: JSON) -> list[JSON]:
    """The places in which the user has given the word for a call."""
    texts = map(kept, sorted(folder.glob(f"{digest_name(call)}-*.json")))
    return [json.loads(text)["place"] for text in texts if text]


def read_notes(path: Path) -> dict[str, Note]:
    """Read the record of a place; the last digest of a file counts, in any order of processes."""
    notes: dict[str, Note] = {}
    for line in kept(path).splitlines():
        with suppress(ValueError, KeyError):  # a line that a full disk has cut short
            fact = json.loads(line)
            file, loaded = fact["file"], fact["loaded"] or notes.get(fact["file"], NONE).loaded
            notes[file] = Note(fact["digest"], loaded)
    return notes


def _append(path: Path, notes: Mapping[str, Note]) -> None:
    """Append lines, which processes of one run do at the same time; no place, no record."""
    lines = (json.dumps({"file": file, **note._asdict()}) + "\n" for file, note in notes.items())
    with suppress(OSError), path.open("a", encoding="utf-8") as record:
        record.write("".join(lines))


def _beside(file: str) -> Iterator[str]:
    """Yield the real paths of the code in the folder of a file, of not too many."""
    folder = Path(file).parent
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIXES))
        yield from (os.path.realpath(folder / name) for name in names[:MOST_BESIDE])


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
    place, folder = place_of(_module(call)), state_folder(FOLDER)
    if place is None or folder is None or not kept(word_file(folder, call, place)):
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
    place, folder = place_of(_module(call)), state_folder(FOLDER)
    if place is None or folder is None:
        guard().policy = None
        return
    keep(word_file(folder, call, place), {"call": call, "place": place})
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
