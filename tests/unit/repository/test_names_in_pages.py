"""Files, keys and modules that a page names exist in the repository."""

import re
import tomllib
from dataclasses import fields
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

from fullrank.config import RunConfig

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    page
    for pattern in ("AGENTS.md", "CONTRIBUTING.md", "README.md", "docs/**/*.md", "services/*/*.md")
    for page in ROOT.glob(pattern)
)
FOLDERS = "benchmarks|deploy|docs|examples|papers|protos|services|src|tests|tools"
PATH = re.compile(rf"(?:{FOLDERS})(?:/[a-z0-9_.-]+)+/?")
KEY = re.compile(rf"(?:{'|'.join(field.name for field in fields(RunConfig))})\.[a-z_]+")
MODULE = re.compile(r"fullrank(?:_[a-z]+)?(?:\.\w+)+")
PLUGINS = ("environment", "algorithm", "code", "stragglers")
FILES = (".env", ".json", ".jsonl", ".md", ".proto", ".py", ".toml", ".crt", ".key")


@cache
def names(page: Path) -> frozenset[str]:
    """Code spans of a page, blocks left out."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    return frozenset(re.findall(r"`([^`\n]+)`", prose))


@cache
def keys() -> frozenset[str]:
    text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^\* `([\w.]+)` \(", text, flags=re.MULTILINE))


@cache
def groups() -> frozenset[str]:
    """Groups of entry points, which are named like modules."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return frozenset(project["project"]["entry-points"])


def fails_to_resolve(name: str) -> bool:
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return True
    return False


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_every_path_in_a_page_exists(page: Path) -> None:
    paths = [name for name in names(page) if PATH.fullmatch(name)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@every_page
def test_every_key_in_a_page_exists(page: Path) -> None:
    used = {name.partition("=")[0].strip() for name in names(page)}
    used |= set(re.findall(r"--set '?([\w.]+)=", page.read_text(encoding="utf-8")))
    used = {name for name in used if KEY.fullmatch(name) and not name.endswith(FILES)}
    used -= keys() | {f"{section}.name" for section in PLUGINS}
    assert {name for name in used if fails_to_resolve(f"fullrank.{name}")} == set()


@every_page
def test_every_module_in_a_page_exists(page: Path) -> None:
    used = {name for name in names(page) if MODULE.fullmatch(name)} - groups()
    assert {name for name in used if fails_to_resolve(name)} == set()
