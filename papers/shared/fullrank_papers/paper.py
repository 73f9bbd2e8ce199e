"""A paper: cells by part and scale, and the page that its results fill."""

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import Any, Generic, TypeVar

from fullrank.common.data import toml as toml
from fullrank_papers.cells import Cell, CellOrigin, CellStore, Later, Results, gather
from fullrank_papers.claims import RULES, Judgement, as_list, corrected

PAGE = "README.md"
RULES_PAGE = "../../../docs/verdicts.md"
DIFFERENCES = "Differences from the paper:"
"""Heading in the docstring of a module, before a list."""

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
    judged: Callable[[Findings[Scale]], Judgement]
    """Judgement on its claims by source, before Holm's correction."""
    modules: Sequence[str]
    """Modules whose docstrings say what differs from the paper."""
    values: Callable[[Findings[Scale]], Mapping[str, Any]]
    """Other values by their name in the page; those without results are left out."""
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
        stores = [CellStore(each) for each in (directory, *others)]
        results = gather(
            [cell for cells in planned.values() for cell in cells],
            stores[0],
            chosen={cell.name for part in parts for cell in planned[part]},
            done=done,
            others=stores[1:],
            workers=workers,
        )
        left = missing(planned, results)
        whole = frozenset(planned.keys() - left.keys())
        findings = Findings(scale=scale, results=results, whole=whole)
        self.draw(findings, directory)
        listed = "".join(f"* {line}\n" for line in left.values())
        values: dict[str, Any] = {"name": name, "scale": scale}
        values["missing"] = f"Not here yet:\n\n{listed}\n" if left else ""
        values["claims"] = as_list(corrected(self.judged(findings)))
        older = sum(not any(store.after_rules(name) for store in stores) for name in results)
        values["rules"] = (
            f"Judged by the [rules]({RULES_PAGE}) `{RULES}`, which came after {older} of the "
            f"{len(results)} cells"
        )
        values["differences"] = differences(self.modules)
        values |= self.values(findings)
        for template in files(self.package).iterdir():
            if template.name.endswith(".md"):
                text = filled(template.read_text(encoding="utf-8"), values)
                page = PAGE if template.name == "page.md" else template.name
                (directory / page).write_text(text, encoding="utf-8")
        return directory / PAGE


def differences(modules: Sequence[str]) -> str:
    """List what differs from the paper, by the docstrings of modules."""
    found = []
    for module in modules:
        text = import_module(module).__doc__ or ""
        _, heading, listed = text.partition(f"\n{DIFFERENCES}\n\n")
        if not heading:
            raise AssertionError(f"the docstring of {module} has no heading {DIFFERENCES!r}")
        listed = re.sub(r"``", "`", listed.split("\n\n")[0].strip())
        found.append(re.sub(r"^- ", "* ", listed, flags=re.MULTILINE))
    return "\n".join(found)


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
