"""Lines of code are those of docstrings, comments, imports and blanks left out."""

import importlib.util
from pathlib import Path

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


def test_a_line_of_code_is_counted_once_and_nothing_else() -> None:
    path = Path(__file__).resolve().parents[3] / "tools" / "budget.py"
    spec = importlib.util.spec_from_file_location("budget", path)
    assert spec is not None
    assert spec.loader is not None
    budget = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(budget)
    assert budget.code_lines(SOURCE) == 5
