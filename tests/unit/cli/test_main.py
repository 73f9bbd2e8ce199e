"""The command line as a whole: quick help, errors in one line, documented exit codes."""

import errno
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from fullrank import __version__
from fullrank.cli.main import Verb
from fullrank.common.errors import CodeError, FullrankError, NotDecodable

from .conftest import Command

module = import_module("fullrank.cli.main")  # the name in the package is the function


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """``verb(error)`` makes ``fullrank probe`` raise ``error``."""

    def install(error: BaseException) -> None:
        def probe() -> None:
            raise error

        monkeypatch.setattr(module, "probe", probe, raising=False)
        monkeypatch.setitem(
            module.VERBS, "probe", Verb("Test", "fullrank.cli.main:probe", "Raises.")
        )

    return install


def test_the_version_is_shown(fullrank: Command) -> None:
    assert fullrank("--version") == (0, f"fullrank {__version__}\n", "")


def test_help_names_every_verb(fullrank: Command) -> None:
    code, output, _ = fullrank("--help")
    assert code == 0
    assert [name for name in module.verbs() if not re.search(rf"\b{name}\b", output)] == []


def test_help_and_readme_say_where_train_trains(
    fullrank: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, every, _ = fullrank("--help")
    assert code == 0
    assert "Train on services of this host, or by --local here." in every
    code, own, _ = fullrank("train", "--help")
    assert code == 0
    assert "a controller, a replay service and learners" in " ".join(own.split())
    readme = " ".join((Path(__file__).parents[3] / "README.md").read_text().split())
    assert "`train` starts services on this host, or with `--local` none" in readme
    assert "train --local: three agents, one process" in readme


@pytest.mark.parametrize("name", list(module.verbs()))
def test_every_verb_can_be_mounted(fullrank: Command, name: str) -> None:
    code, output, error = fullrank(name, "--help")
    assert (code, error) == (0, "")
    assert f"fullrank {name}" in output


def test_an_unknown_verb_is_a_usage_error_with_the_nearest(fullrank: Command) -> None:
    code, _, error = fullrank("confg")
    assert code == 2
    assert "'config'" in error


def test_an_expected_error_is_one_line_and_its_code(
    fullrank: Command, verb: Callable[[BaseException], None]
) -> None:
    verb(CodeError("no such code\n  exists;   use another"))
    assert fullrank("probe") == (2, "", "fullrank: no such code exists; use another\n")


def test_expected_errors_of_several_tasks_are_reported_by_the_first(
    fullrank: Command, verb: Callable[[BaseException], None]
) -> None:
    inner = ExceptionGroup("tasks", [NotDecodable("rank 2 of 3")])
    verb(ExceptionGroup("tasks", [inner, FullrankError("other")]))
    assert fullrank("probe") == (6, "", "fullrank: rank 2 of 3\n")


def test_the_line_of_an_error_is_bounded(
    fullrank: Command, verb: Callable[[BaseException], None]
) -> None:
    verb(FullrankError("x" * 1_000_000))
    outcome = fullrank("probe")
    assert outcome.code == 1
    assert len(outcome.error) < 2_100


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; allow more with"),
        (OSError(errno.ENOSPC, "No space left", "runs/a/lock"), "No space left: runs/a/lock; make"),
        (OSError(errno.EROFS, "Read-only", "runs/a/lock"), "Read-only: runs/a/lock; mount it"),
    ],
)
def test_what_the_system_lacks_is_one_line(
    error: OSError, line: str, fullrank: Command, verb: Callable[[BaseException], None]
) -> None:
    verb(error)
    outcome = fullrank("probe")
    assert outcome.code == 1
    assert outcome.error.startswith(f"fullrank: {line}")
    assert outcome.error.count("\n") == 1


def test_a_defect_keeps_its_traceback(verb: Callable[[BaseException], None]) -> None:
    verb(ExceptionGroup("tasks", [NotDecodable("rank 2 of 3"), ZeroDivisionError()]))
    with pytest.raises(ExceptionGroup):
        module.main(["probe"])


def test_ctrl_c_is_130(fullrank: Command, verb: Callable[[BaseException], None]) -> None:
    verb(KeyboardInterrupt())
    code, _, error = fullrank("probe")
    assert code == 130
    assert "Traceback" not in error
