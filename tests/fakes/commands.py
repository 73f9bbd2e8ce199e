"""Commands on PATH that replay what ``docker`` and ``kubectl`` print, and keep their words."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

INSPECTED = Path(__file__).with_name("docker_inspect.json")
"""Recorded from Docker 28.2 and Compose 2.40."""
Replies: TypeAlias = Mapping[str, object]

FAKE = """#!{python}
import json, os, pathlib, shutil, sys

here = pathlib.Path(__file__).parent
(here / "environ").write_text(json.dumps(dict(os.environ)))
words = " ".join(sys.argv[1:])
with open(here / "calls", "a") as calls:
    calls.write("{name} " + words + "\\n")
for start, reply in json.loads((here / "{name}.json").read_text()):
    if words.startswith(start):
        break
else:
    sys.exit("unexpected: " + words)
if isinstance(reply, dict) and "fails" in reply:
    sys.exit(reply["fails"])
if isinstance(reply, dict) and "copies" in reply:
    pathlib.Path(sys.argv[-1]).write_text(reply["copies"])
elif isinstance(reply, dict) and "keeps" in reply:
    shutil.copytree(sys.argv[-1], reply["keeps"])
else:
    print(reply if isinstance(reply, str) else json.dumps(reply))
"""


class Fakes:
    """Commands on PATH that replay replies by the beginning of their words, and keep these."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def set(self, name: str, replies: Replies) -> None:
        program = self._folder / name
        program.write_text(FAKE.format(python=sys.executable, name=name))
        program.chmod(0o755)
        (self._folder / f"{name}.json").write_text(json.dumps([*replies.items()]))

    def calls(self) -> list[str]:
        path = self._folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def environ(self) -> dict[str, str]:
        """Variables of the last call."""
        return dict(json.loads((self._folder / "environ").read_text()))
