"""What the pages promise: links lead somewhere, keys resolve, the configuration is the code's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fullrank.cli.main import VERBS
from fullrank.errors import FullrankError

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "docs/*/*.md", "services/*/*.md")
    for page in ROOT.glob(pattern)
)
CITATION = re.compile(r"\[([A-Z][A-Za-z]+\d{2}|DARL1N)\b")


def _sources() -> list[Path]:
    folders = ("src", "services", "tests", "benchmarks", "tools", "examples")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_citation_resolves_in_the_bibliography() -> None:
    known = set(CITATION.findall((ROOT / "docs/bibliography.md").read_text(encoding="utf-8")))
    cited = {
        key
        for path in (*_sources(), *PAGES)
        for key in CITATION.findall(path.read_text(encoding="utf-8"))
    }
    assert "Wang21" in cited
    assert cited - known == set()


def test_the_configuration_page_is_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools/configuration.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs/exit-codes.md").read_text(encoding="utf-8")
    for error in FullrankError.__subclasses__():
        assert f"\n| {error.exit_code} |" in page, error.__name__


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_shown_in_the_readme(verb: str) -> None:
    assert f"fullrank {verb}" in (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_readme_s_python_runs() -> None:
    (block,) = _blocks("README.md", "python")
    exec(compile(block, "README.md", "exec"), {})


TRAIN_IT = """
from fullrank.config import load
from fullrank.local import LocalRun

options = {"environment.name": "drift", "environment.agents": 2, "iterations": 2,
           "collect.warmup": 64, "algorithm.batch_size": 64}
assert len(LocalRun(load(options=options).check().config).train()) == 2
"""


def test_the_environment_in_the_guide_trains() -> None:
    (block,) = _blocks("docs/bring-your-environment.md", "python")
    command = [sys.executable, "-c", block + TRAIN_IT]  # elsewhere, for it registers a name
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("index", ["mkdocs.yml", "docs/README.md"])
def test_every_page_is_in_the_index(index: str) -> None:
    text = (ROOT / index).read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    missing = [page for page in map(str, pages) if page not in text and page != "README.md"]
    assert missing == []
