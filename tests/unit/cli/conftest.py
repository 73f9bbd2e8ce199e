"""Running the command line within the test process."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pytest

from fullrank.cli import main


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    output: str
    error: str


Command: TypeAlias = Callable[..., Outcome]


@pytest.fixture
def fullrank(capsys: pytest.CaptureFixture[str]) -> Command:
    """``fullrank(*words)`` runs the command line."""

    def run(*words: str) -> Outcome:
        with pytest.raises(SystemExit) as end:
            main(words)
        code = end.value.code or 0
        assert isinstance(code, int)
        return Outcome(code, *capsys.readouterr())

    return run
