"""The user's word for code: calls in places, and the digests of the local code there.

A word is a file of ``$XDG_STATE_HOME/fullrank/consent``, named by the digests of the call and of
its place. A file of the place beside it has a line for each local file of code.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from fullrank.common.errors import CodeRefused
from fullrank.common.text import plain
from fullrank.common.types import JSON
from fullrank.config import state
from fullrank.environments.local_code import SUFFIXES, digest_of

FOLDER, BY_NAME = "consent", "environments"
"""Folders of the words that count, and of those of earlier versions, for a name alone."""
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
    return folder / f"{state.name_of(call)}-{state.name_of(place)}.json"


def code_file(folder: Path, place: JSON) -> Path:
    """The record of the local code of a place."""
    return folder / f"{state.name_of(place)}.jsonl"


def places_of(folder: Path, call: JSON) -> list[JSON]:
    """The places in which the user has given the word for a call."""
    texts = map(state.kept, sorted(folder.glob(f"{state.name_of(call)}-*.json")))
    return [json.loads(text)["place"] for text in texts if text]


def read_notes(path: Path) -> dict[str, Note]:
    """Read the record of a place; the last digest of a file counts, in any order of processes."""
    notes: dict[str, Note] = {}
    for line in state.kept(path).splitlines():
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
