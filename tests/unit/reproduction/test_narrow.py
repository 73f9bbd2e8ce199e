"""Narrow Markdown: short lines, the same words."""

import re

from fullrank_reproduction.narrow import WIDTH, item, narrow

PROSE = "rank(C_J) = M holds for N - M late learners " * 8
NUMBERS = ["| k | " + " | ".join(f"column {number}" for number in range(30)) + " |"]
NUMBERS += ["|---|" + "---|" * 30]
NUMBERS += [f"| {k} | " + " | ".join(f"{k}.{number}" for number in range(30)) + " |" for k in "12"]


def words(text: str) -> list[str]:
    return re.findall(r"[\w.]+", text)


def test_long_prose_is_wrapped_without_a_line_that_begins_as_markup() -> None:
    for text in (PROSE, f"* {PROSE}", f"1. {PROSE}"):
        lines = narrow(text).split("\n")
        assert words(" ".join(lines)) == words(text)
        assert max(map(len, lines)) <= WIDTH
        assert not [line for line in lines[1:] if re.match(r"\s*([-+*#>|]|\d+[.)]) ", line)]


def test_short_paragraphs_headings_and_code_stay() -> None:
    text = "\n".join(["# " + "x " * 70, "", "short", "lines", "```", "y " * 70, "```"])
    assert narrow(text) == text


def test_a_wide_table_of_short_cells_becomes_tables_that_repeat_its_key() -> None:
    tables = narrow("\n".join(NUMBERS)).split("\n\n")
    assert len(tables) > 1
    for table in tables:
        lines = table.split("\n")
        assert max(map(len, lines)) <= WIDTH
        assert [words(line)[0] for line in lines if not line.startswith("|--")] == ["k", "1", "2"]
    cells = {cell for table in tables for cell in words(table)}
    assert {f"2.{number}" for number in range(30)} <= cells


def test_a_wide_table_of_long_cells_becomes_a_list() -> None:
    table = ["| case | result | cost |", "|---|---|---|", rf"| \|J\| = 2 | {PROSE}| low |"]
    text = narrow("\n".join(table))
    assert text.startswith("* **|J| = 2**; result: rank(C_J) = M holds")
    assert text.endswith("; cost: low")
    assert max(map(len, text.split("\n"))) <= WIDTH


def test_an_item_continues_under_its_text() -> None:
    first, *rest = item(PROSE).split("\n")
    assert first.startswith("* rank")
    assert all(re.match(r"  \w", line) for line in rest)
