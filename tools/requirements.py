"""Write deploy/requirements/: the dependencies that each image installs.

The one wheel depends on everything; an image installs it without dependencies, beside the list of
its service's imports. Versions come from pyproject.toml and constraints.txt. ``--check`` fails if a
list is stale.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "requirements"

SERVICES = frozenset(
    {
        "blake3",
        "cryptography",
        "google-crc32c",
        "grpcio",
        "grpcio-health-checking",
        "grpcio-reflection",
        "numpy",
        "prometheus-client",
        "protobuf",
        "pydantic",
        "threadpoolctl",
        "typer",
    }
)
"""Imports of every service; replay and straggler need no others."""
DASHBOARD = SERVICES | {"starlette", "tenacity", "uvicorn"}
LEARNER = SERVICES | {"tenacity", "torch"}
COLLECTOR = LEARNER | {"gymnasium", "pettingzoo"}
CONTROLLER = COLLECTOR | {"safetensors", "scipy"}

LISTS: Mapping[str, Collection[str]] = {
    "services": SERVICES,
    "dashboard": DASHBOARD,
    "learner": LEARNER,
    "collector": COLLECTOR,
    "controller": CONTROLLER,
}

OPENING = "# Written by tools/requirements.py from pyproject.toml and constraints.txt.\n"


def name_of(requirement: str) -> str:
    """Distribution that a requirement names."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def requirements() -> dict[str, str]:
    """Requirements of the services by name; a constraint wins over a range."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["dashboard"]]
    ranges = {name_of(text): text for text in texts}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {name_of(line): line for line in lines if line and not line.startswith("#")}
    return {name: pins.get(name, text) for name, text in ranges.items()}


def pages() -> dict[Path, str]:
    """Contents of all lists by file.

    Raises:
        KeyError: An image lists a package that the distribution does not depend on.
    """
    known = requirements()
    return {
        FOLDER / f"{image}.txt": OPENING + "".join(f"{known[name]}\n" for name in sorted(names))
        for image, names in LISTS.items()
    }


def main() -> int:
    """Write the lists, or compare them with the committed ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a list is stale")
    check = parser.parse_args().check
    stale = [
        path for path, text in pages().items() if not path.exists() or path.read_text() != text
    ]
    if check and stale:
        print("stale; run python tools/requirements.py:", *(path.name for path in stale))
        return 1
    for path in stale:
        path.write_text(pages()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
