"""Lock deploy/requirements/: the distributions that each image installs, with their hashes.

The one wheel depends on everything; an image installs it without dependencies, beside the lock of
its service's imports. Ranges come from pyproject.toml and constraints.txt. Running this tool is
the renewal: it resolves the newest releases within the ranges, once for all images, from pip's
index (needs ``uv``, of the extra ``release``). ``--check`` reads the committed locks alone and
fails where one leaves a range, lacks a hash, or differs from another one.

torch stands apart, in one lock for the build for CPUs and one for CUDA; an image installs either.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "requirements"
PYTHON = "3.11"
"""Oldest Python that an image may have; locks hold markers for all later ones."""

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
LISTS: dict[str, set[str]] = {}
"""Direct imports by lock; ``build`` makes the wheel."""
for _name, _lock in _DATA["locks"].items():
    LISTS[_name] = {*_lock["imports"], *LISTS.get(_lock.get("beyond", ""), ())}
CPU_WHEELS: Mapping[str, Collection[str]] = _DATA["cpu_wheels"]
CUDA = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
"""Distributions of torch for CUDA, which the lock of no service holds."""
OPENING = "# Locked by tools/requirements.py from pyproject.toml and constraints.txt.\n"


def ranges() -> dict[str, str]:
    """Requirements of the services by name; a constraint wins over a range."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    texts = [*project["project"]["dependencies"], *extras["dashboard"], *extras["s3"]]
    texts += project["build-system"]["requires"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    known = {Requirement(text).name: text for text in texts}
    return known | {name: pin for pin in pins if (name := Requirement(pin).name) in known}


def entries(lock: str) -> Iterator[tuple[Requirement, str]]:
    """Each pin of a lock, and its text with all hashes."""
    for text in re.findall(r"^[^#\s].*(?:\n .*)*", lock, re.MULTILINE):
        yield Requirement(re.split(r" *\\\n", text)[0]), text


def resolve(requirements: Collection[str], constraint: Path | None = None) -> str:
    """The newest pins that meet requirements, and a lock's where one is given, with hashes.

    Raises:
        SystemExit: There is no ``uv``, or nothing meets the requirements.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--no-header"]
    command += ["--no-annotate", "--universal", "--generate-hashes", "--python-version", PYTHON]
    if constraint is not None:
        command += ["--constraint", str(constraint)]
    text = "\n".join(requirements)
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"cannot lock; install the extra release: {run.stderr.strip()}")
    return run.stdout


def locks() -> dict[str, str]:
    """The contents of all locks by name, resolved together."""
    known = ranges()
    with tempfile.TemporaryDirectory() as folder:
        everything = Path(folder) / "everything.txt"
        everything.write_text(
            resolve(sorted({known[n] for names in LISTS.values() for n in names}))
        )
        found = {
            name: resolve([known[each] for each in sorted(names)], everything)
            for name, names in LISTS.items()
        }
    cuda = dict(_split(found["learner"]))[True]
    ((version,),) = (
        [each.version for each in pin.specifier] for pin, _ in cuda if pin.name == "torch"
    )
    hashes = "".join(f" \\\n    --hash=sha256:{each}" for each in CPU_WHEELS[version])
    pages = {
        name: "".join(f"{text}\n" for _, text in dict(_split(lock))[False])
        for name, lock in found.items()
    }
    pages["torch-cuda"] = "".join(f"{text}\n" for _, text in cuda)
    pages["torch-cpu"] = f"torch=={version}{hashes}\n"
    return pages


def _split(lock: str) -> Iterator[tuple[bool, list[tuple[Requirement, str]]]]:
    pins = list(entries(lock))
    for cuda in (False, True):
        yield cuda, [pin for pin in pins if bool(CUDA.fullmatch(pin[0].name)) is cuda]


def faults() -> Iterator[str]:
    """What is wrong with the committed locks."""
    pinned: dict[str, set[str]] = {}
    for name in (*LISTS, "torch-cpu", "torch-cuda"):
        path = FOLDER / f"{name}.txt"
        found = list(entries(path.read_text())) if path.exists() else []
        names = {canonicalize_name(pin.name) for pin, _ in found}
        wanted = (
            {each for each in LISTS[name] if not CUDA.fullmatch(each)}
            if name in LISTS
            else {"torch"}
        )
        for missing in sorted(wanted - names):
            yield f"{path.name} lacks {missing}"
        for pin, text in found:
            (exact,) = pin.specifier
            pinned.setdefault(f"{pin.name}; {pin.marker}", set()).add(exact.version)
            if exact.operator != "==" or "--hash=sha256:" not in text:
                yield f"{path.name}: {pin.name} has no exact version with a hash"
    for key, versions in pinned.items():
        name = key.partition(";")[0]
        allowed = Requirement(ranges().get(name, name)).specifier
        if len(versions) > 1 or not all(allowed.contains(Version(each)) for each in versions):
            yield f"{name} is {' and '.join(sorted(versions))}, of {allowed or 'one version'}"


def main() -> int:
    """Write the locks, or check the committed ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="check the committed locks alone")
    if parser.parse_args().check:
        if found := list(faults()):
            print("stale; run python tools/requirements.py:", *found, sep="\n")
        return 1 if found else 0
    for name, text in locks().items():
        (FOLDER / f"{name}.txt").write_text(OPENING + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
