"""Markdown with short lines: long prose is wrapped, wide tables become narrower ones or lists."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

WIDTH = 120
_LONGEST_CELL = 50
_MARKER = re.compile(r"(?<= )(?=(?:[-+*#>|]|\d+[.)]) )")
"""A place where a break would turn the next word into Markdown syntax."""
_GLUE = "\0"

TableRow = Sequence[str]


def narrow(text: str) -> str:
    """``text`` with lines of at most 120 characters outside code blocks."""
    lines: list[str] = []
    for kind, block in groupby(_classified(text.split("\n")), key=itemgetter(0)):
        lines += _narrowed(kind, [line for _, line in block])
    return "\n".join(lines)


def item(text: str) -> str:
    """``text`` as an item of a list, in lines of at most 120 characters."""
    return "\n".join(_wrapped(f"* {text}", indent="  "))


def _classified(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield lines with their kind: "table", "prose", or "other" for those that stay."""
    in_code = False
    for line in lines:
        fence = line.lstrip().startswith("```")
        in_code ^= fence
        if fence or in_code or not line.strip() or line.startswith(("#", "!", "<")):
            yield "other", line
        else:
            yield "table" if line.startswith("|") else "prose", line


def _narrowed(kind: str, block: list[str]) -> list[str]:
    if kind == "other" or max(map(len, block)) <= WIDTH:
        return block
    return list(_table(block)) if kind == "table" else list(_prose(block))


def _prose(block: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a paragraph or list, each item with a long line wrapped anew."""
    items: list[list[str]] = []
    for line in block:
        if not items or re.match(r"\s*(?:[*-]|\d+\.) ", line):
            items.append([])
        items[-1].append(line)
    for lines in items:
        if max(map(len, lines)) <= WIDTH:
            yield from lines
        else:
            marker = re.match(r"\s*(?:(?:[*-]|\d+\.) +)?", lines[0])
            indent = " " * len(marker.group()) if marker else ""
            yield from _wrapped(" ".join([lines[0], *map(str.strip, lines[1:])]), indent)


def _wrapped(text: str, indent: str) -> list[str]:
    glued = _MARKER.sub(_GLUE, text[len(indent) :]).replace(f" {_GLUE}", _GLUE)
    lines = textwrap.wrap(
        text[: len(indent)] + glued,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines]


def _table(block: Sequence[str]) -> Iterator[str]:
    """Yield a wide table as several with fewer columns each, or as a list if its cells are long."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block]
    head, body = rows[0], rows[2:]
    keys = next(
        (count for count in (1, 2, 3) if len({tuple(row[:count]) for row in body}) == len(body)), 0
    )
    if keys and max(len(cell) for row in body for cell in row) <= _LONGEST_CELL:
        yield from _split(rows, keys)
    else:
        yield from (item(_described(head, row)).replace(r"\|", "|") for row in body)


def _split(rows: Sequence[TableRow], keys: int) -> Iterator[str]:
    """Yield tables that repeat the first ``keys`` columns beside as many others as fit."""
    columns = [list(range(keys))]
    for column in range(keys, len(rows[0])):
        if max(len(_line(row, [*columns[-1], column])) for row in rows) > WIDTH:
            columns.append(list(range(keys)))
        columns[-1].append(column)
    for number, chosen in enumerate(columns):
        if number:
            yield ""
        yield from (_line(row, chosen) for row in rows)


def _line(row: TableRow, columns: Sequence[int]) -> str:
    cells = [row[column] for column in columns]
    return f"|{'|'.join(cells)}|" if cells[0] == "---" else f"| {' | '.join(cells)} |"


def _described(head: TableRow, row: TableRow) -> str:
    """First cell, then the others under their headings."""
    first = row[0] if row[0].startswith(("`", "[", "*")) else f"**{row[0]}**"
    if len(row) == 2:
        return f"{first}: {row[1]}"
    pairs = zip(head[1:], row[1:], strict=True)
    return "; ".join(
        [first, *(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)]
    )
