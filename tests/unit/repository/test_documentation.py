"""Pages of the documentation: links and keys resolve, and the configuration is the code's."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from tests.unit.cli.test_plot import record
from typer.main import get_command

from fullrank.cli.containers import FINAL
from fullrank.cli.main import build, verbs
from fullrank.cli.objects import INTERRUPTED
from fullrank.common.errors import FullrankError
from fullrank.config import load
from fullrank.runs.record import METRICS, to_line

ROOT = Path(__file__).resolve().parents[3]
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
    prose = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    links = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_a_page_but_rows_of_tables_is_longer_than_120_characters(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


def test_every_citation_resolves_in_the_bibliography() -> None:
    known = set(CITATION.findall((ROOT / "docs/bibliography.md").read_text(encoding="utf-8")))
    cited = {
        key
        for path in (*_sources(), *PAGES)
        for key in CITATION.findall(path.read_text(encoding="utf-8"))
    }
    assert "Wang21" in cited
    assert cited - known == set()


@pytest.mark.integration
@pytest.mark.parametrize("tool", ["configuration.py", "proto_reference.py"])
def test_a_page_written_by_a_tool_is_fresh(tool: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs/exit-codes.md").read_text(encoding="utf-8")
    for error in FullrankError.__subclasses__():
        assert f"\n* **{error.exit_code}** (" in page, error.__name__


def test_the_final_and_the_transient_exit_codes_are_those_of_the_errors() -> None:
    page = (ROOT / "docs/exit-codes.md").read_text(encoding="utf-8")
    row = re.search(r"^\| final \| transient \|\n.*\n\| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert row is not None
    final, transient = ({*map(int, re.findall(r"\d+", column))} for column in row.groups())
    assert final == FINAL
    errors: list[type[FullrankError]] = [FullrankError, *FullrankError.__subclasses__()]
    assert transient == {each.exit_code for each in errors if not each.final} | {INTERRUPTED}


def test_pages_say_how_many_iterations_the_run_of_containers_has() -> None:
    iterations = load(ROOT / "deploy/config/run.toml").config.iterations
    for name, said in (("compose", "iteration 45/{}"), ("kubernetes", "team of three, {:,}\n")):
        page = (ROOT / f"docs/deploy/{name}.md").read_text(encoding="utf-8")
        assert said.format(iterations) in page


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_is_shown_in_the_readme(verb: str) -> None:
    assert f"fullrank {verb}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_in_a_page_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    used = re.findall(r"(?:^\$ |`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(used) <= set(targets)


@pytest.fixture(scope="module")
def application() -> Any:
    return get_command(build(verbs(), mounted=verbs()))


COMMAND = re.compile(r"^\$ fullrank ((?:.*\\\n)*[^#|>;)\n]*)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_page_exists_and_has_its_options(page: Path, application: Any) -> None:
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        words = shlex.split(line)
        command, options = application, [word for word in words if word.startswith("--")]
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        parameters = command.params
        known = {name for each in parameters for name in (*each.opts, *each.secondary_opts)}
        assert command is not application, line
        assert {option.partition("=")[0] for option in options} <= known, line


def test_the_tutorial_s_python_reads_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / "first").mkdir(parents=True)
    lines = [to_line(record(iteration, late=1)) + "\n" for iteration in range(5)]
    (tmp_path / "runs" / "first" / METRICS).write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    (block,) = _blocks("docs/tutorial.md", "python")
    exec(compile(block, "tutorial.md", "exec"), {})
    printed = capsys.readouterr().out
    assert [number for number in range(5) if f"{number} used (0, 1)" in printed] == [2, 3, 4]
    assert printed.count("  exact\n") == 3


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


@pytest.mark.integration
@pytest.mark.parametrize("blocks", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_the_environment_in_the_guide_trains(blocks: int) -> None:
    code = "".join(_blocks("docs/bring-your-environment.md", "python")[:blocks])
    command = [sys.executable, "-c", code + TRAIN_IT]  # another process: it registers a name
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.integration
@pytest.mark.parametrize("capable", [False, True])
def test_the_environment_in_the_guide_keeps_the_laws(capable: bool, tmp_path: Path) -> None:
    drift, laws, capabilities = _blocks("docs/bring-your-environment.md", "python")
    members = indent(capabilities, "    ") if capable else ""
    (tmp_path / "test_drift.py").write_text(f"{drift}\n{members}\n{laws}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_drift.py"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("index", ["mkdocs.yml", "docs/README.md"])
def test_every_page_is_in_the_index(index: str) -> None:
    text = (ROOT / index).read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    missing = [page for page in map(str, pages) if page not in text and page != "README.md"]
    assert missing == []


@pytest.mark.parametrize("service", ["collector", "controller", "learner", "replay", "straggler"])
def test_every_file_of_a_service_has_a_row_in_its_readme(service: str) -> None:
    text = (ROOT / f"services/{service}/README.md").read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / f"services/{service}/fullrank_{service}").glob("*.py")}
    assert files - {"__init__.py"} - set(re.findall(r"`(\w+\.py)`", text)) == set()


PROOF = re.compile(
    r"`((?:unit|integration|e2e|conformance)/[\w/]+\.py|benchmarks/\w+\.py)(?:::(\w+))?`"
)


def test_what_a_guarantee_rests_on_exists() -> None:
    text = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    for path, name in PROOF.findall(text):
        source = ROOT / ("" if path.startswith("benchmarks") else "tests") / path
        assert f"def {name}(" in source.read_text() if name else source.exists(), (path, name)


def test_every_guarantee_and_scenario_says_what_shows_it() -> None:
    text = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\* \*\*([GR]\d+)\*\*((?:.*\n)(?:  .*\n)*)", text, flags=re.MULTILINE))
    guarantees = sum(key.startswith("G") for key in rows)
    assert guarantees >= 9
    assert len(rows) - guarantees >= 50
    assert [*rows] == [f"G{number}" for number in range(1, guarantees + 1)] + [
        f"R{number:02}" for number in range(1, len(rows) - guarantees + 1)
    ]
    assert [key for key, row in rows.items() if not PROOF.search(row)] == []
