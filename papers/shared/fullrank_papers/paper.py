"""A paper: cells by part and scale, and the page that its results fill."""

import re
import tomllib
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import Any, Generic, TypeVar

from fullrank_papers.cells import Cell, CellOrigin, CellStore, Later, Results, gather

PAGE = "README.md"

Scale = TypeVar("Scale")
Planned = Sequence[Cell | Later]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings(Generic[Scale]):
    """The results of a reproduction that are there."""

    scale: Scale
    results: Results
    whole: frozenset[str]
    """Parts all of whose results are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper(Generic[Scale]):
    """The reproduction of a paper."""

    folder: str
    """Its folder in ``papers``."""
    package: str
    """Its Python package, which has ``page.md``."""
    scales: Mapping[str, Scale]
    """Sizes by name."""
    parts: Mapping[str, Callable[[Scale], Planned]]
    """Cells of each part, quick ones first."""
    values: Callable[[Findings[Scale]], Mapping[str, Any]]
    """Values by their name in the page; those without results are left out."""
    draw: Callable[[Findings[Scale], Path], None]
    """Draws the pictures of the results that are there into a directory."""

    def planned(self, scale: Scale) -> dict[str, Planned]:
        """All cells of a scale, by part."""
        return {name: cells(scale) for name, cells in self.parts.items()}

    def reproduce(
        self,
        name: str,
        scale: Scale,
        planned: Mapping[str, Planned],
        directory: Path,
        *,
        parts: Collection[str],
        done: Callable[[Cell | Later, CellOrigin], None] = lambda cell, origin: None,
        others: Sequence[Path] = (),
        workers: int = 1,
    ) -> Path:
        """Compute missing cells, then write pictures and the page of what there is.

        Args:
            name: Name of the scale.
            scale: Its sizes.
            planned: Its cells, by part.
            directory: Directory of results, pictures and page; existing results are reused.
            parts: Parts that are computed; results of others count if they are there.
            done: Called with each cell when its result is available.
            others: Directories of other scales, whose results of equal cells count, too.
            workers: Processes for cells that may be computed beside others.

        Returns:
            The path of the page.
        """
        results = gather(
            [cell for cells in planned.values() for cell in cells],
            CellStore(directory),
            chosen={cell.name for part in parts for cell in planned[part]},
            done=done,
            others=[CellStore(other) for other in others],
            workers=workers,
        )
        left = missing(planned, results)
        whole = frozenset(planned.keys() - left.keys())
        findings = Findings(scale=scale, results=results, whole=whole)
        self.draw(findings, directory)
        listed = "".join(f"* {line}\n" for line in left.values())
        values: dict[str, Any] = {"name": name, "scale": scale}
        values["missing"] = f"Not here yet:\n\n{listed}\n" if left else ""
        template = files(self.package).joinpath("page.md").read_text(encoding="utf-8")
        text = filled(template, values | dict(self.values(findings)))
        (directory / PAGE).write_text(text, encoding="utf-8")
        return directory / PAGE


def missing(planned: Mapping[str, Planned], there: Container[str]) -> dict[str, str]:
    """A line for each part that lacks cells."""
    left = {part: sum(c.name not in there for c in cells) for part, cells in planned.items()}
    return {
        part: f"{part}: {count} of {len(planned[part])} cells to compute"
        for part, count in left.items()
        if count
    }


def filled(template: str, values: Mapping[str, Any]) -> str:
    """A page with values in place of their names; sections that lack one are left out."""
    head, *sections = re.split(r"^(?=## )", template, flags=re.MULTILINE)
    fields = {
        section: {
            re.split(r"[.\[]", field)[0]
            for _, field, _, _ in Formatter().parse(section)
            if field is not None
        }
        for section in sections
    }
    there = [section for section in sections if fields[section] <= values.keys()]
    return "".join(section.format_map(values) for section in (head, *there))


def table(heads: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    heads = [*heads]
    lines = ([str(cell) for cell in cells] for cells in (heads, *rows))
    head, *body = ("|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in lines)
    return "\n".join([head, "|" + "---|" * len(heads), *body])


def toml(package: str, name: str) -> dict[str, Any]:
    """A file of data beside a paper's modules, arrays as tuples."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    found: dict[str, Any] = _frozen(tomllib.loads(text))
    return found


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in value.items()}
    return value
