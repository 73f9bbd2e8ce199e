"""Use of the time of day by the modules."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TELLING = {"time.time", "time.time_ns", "time.localtime", "time.gmtime"} | {
    f"{owner}.{call}"
    for owner in ("datetime", "date", "datetime.datetime", "datetime.date")
    for call in ("now", "utcnow", "today")
}


def asks(source: str) -> bool:
    """True if a module names a clock that can be set, or takes one from its module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in TELLING:
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            names = {f"time.{each.name}" for each in node.names}
            if names & TELLING:
                return True
    return False


def test_the_time_of_day_is_asked_for_where_it_is_shown_or_certified_alone() -> None:
    modules = [path for folder in ("src", "services") for path in (ROOT / folder).rglob("*.py")]
    asking = {path.name for path in modules if asks(path.read_text(encoding="utf-8"))}
    assert asking == {"tensorboard.py", "certificates.py"}
