"""Lines of code are those of docstrings, comments, imports and blanks left out."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SOURCE = '''"""Module."""

import os
from pathlib import (
    Path,
)

# A comment.
LIMIT = 3
"""What it is."""


def f(a: int,
      b: int) -> str:
    """Do it."""
    return f"""{a}
    {b}"""  # two lines
'''


@pytest.fixture
def budget() -> Any:
    path = Path(__file__).resolve().parents[3] / "tools" / "budget.py"
    spec = importlib.util.spec_from_file_location("budget", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_line_of_code_is_counted_once_and_nothing_else(budget: Any) -> None:
    assert budget.code_lines(SOURCE) == 5


def test_a_line_of_data_is_counted_unless_it_is_a_comment_or_blank(budget: Any) -> None:
    assert budget.data_lines("# Sizes.\n[smoke]\nsizes = [\n  1,  # few\n]\n\n  # end\n") == 4


def test_the_page_has_each_module_with_its_first_paragraph(budget: Any) -> None:
    source = (budget.ROOT / "src/fullrank/host/probe.py").read_text()
    about = source.removeprefix('"""').partition("\n")[0]
    assert f"| [`probe`](../src/fullrank/host/probe.py) | {about} |" in budget.page().splitlines()
