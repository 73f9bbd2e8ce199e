"""Printing of plain lines; tables and live views are printed by ``fullrank.cli.terminal``."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from fullrank.common.text import plain


def say(*lines: object, error: bool = False) -> None:
    """Print lines at once, each as ``plain`` text.

    Args:
        *lines: The lines, without newlines.
        error: True to print to standard error.
    """
    text = "\n".join(map(plain, lines))
    print(text, file=sys.stderr if error else sys.stdout, flush=True)


def say_json(facts: object) -> None:
    """Print facts as indented JSON, in which no character is left that a terminal obeys."""
    say(*json.dumps(facts, indent=2).split("\n"))


@contextmanager
def kept_stdout() -> Iterator[None]:
    """Send what others print meanwhile, such as an environment, to standard error."""
    with redirect_stdout(sys.stderr):
        yield
