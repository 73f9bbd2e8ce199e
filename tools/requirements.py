"""Write deploy/requirements/: what each image needs of the distribution's dependencies.

The wheel is one and depends on everything; an image installs it without dependencies, next to the
list of what its service imports. Versions come from pyproject.toml and constraints.txt. ``--check``
fails if a list is not what they say.
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
"""What every service imports: all that replay and straggler need."""
DASHBOARD = SERVICES | {"starlette", "tenacity", "uvicorn"}
LEARNER = SERVICES | {"tenacity", "torch"}
CONTROLLER = LEARNER | {"gymnasium", "pettingzoo", "safetensors", "scipy"}

LISTS: Mapping[str, Collection[str]] = {
    "services": SERVICES,
    "dashboard": DASHBOARD,
    "learner": LEARNER,
    "controller": CONTROLLER,
}

OPENING = "# Written by tools/requirements.py from pyproject.toml and constraints.txt.\n"


def name_of(requirement: str) -> str:
    """The distribution that a requirement is about."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def requirements() -> dict[str, str]:
    """Name to requirement of all that services depend on; a constraint wins over the range."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["dashboard"]]
    ranges = {name_of(text): text for text in texts}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {name_of(line): line for line in lines if line and not line.startswith("#")}
    return {name: pins.get(name, text) for name, text in ranges.items()}


def pages() -> dict[Path, str]:
    """File to content.

    Raises:
        KeyError: An image needs what is no dependency of the distribution.
    """
    known = requirements()
    return {
        FOLDER / f"{image}.txt": OPENING + "".join(f"{known[name]}\n" for name in sorted(names))
        for image, names in LISTS.items()
    }


def main() -> int:
    """Write the lists, or compare with what is committed."""
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
