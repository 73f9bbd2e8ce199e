"""The committed pages are those that the committed cells give."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fullrank_papers.cells import CELLS, Cell, CellOrigin, Later
from fullrank_papers.cli import paper_of

PAPERS = Path(__file__).resolve().parents[3] / "papers"


COMMITTED = [
    ("coded-maddpg", "standard"),
    ("darl1n", "standard"),
    ("cmarl", "standard"),
    ("dmcaf", "standard"),
    ("multi-gpu", "smoke"),
]
MOST_WORDS = 2_500
every_paper = pytest.mark.parametrize(("name", "scale"), COMMITTED)


@pytest.mark.integration
@every_paper
def test_the_committed_cells_are_whole_and_give_the_committed_pages(
    name: str, scale: str, tmp_path: Path
) -> None:
    paper = replace(paper_of(name), draw=lambda found, directory: None)
    committed = PAPERS / paper.folder / scale
    (tmp_path / CELLS).write_bytes((committed / CELLS).read_bytes())
    origins: list[CellOrigin] = []

    def done(cell: Cell | Later, origin: CellOrigin) -> None:
        origins.append(origin)

    planned = paper.planned(paper.scales[scale])
    page = paper.reproduce(scale, paper.scales[scale], planned, tmp_path, parts=(), done=done)
    assert "Not here yet" not in page.read_text()
    pages = {each.name: each.read_text() for each in tmp_path.glob("*.md")}
    assert pages == {each.name: each.read_text() for each in committed.glob("*.md")}
    for text in pages.values():
        assert len(text.split()) <= MOST_WORDS
        for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
            assert (committed / picture).exists()
    names = {cell.name for cells in planned.values() for cell in cells}
    assert origins == [CellOrigin.KEPT] * len(names)
    lines = (committed / CELLS).read_text().splitlines()
    assert lines == sorted(lines, key=lambda line: line.split('"')[3])


def test_the_table_of_all_papers_counts_the_verdicts_of_their_pages() -> None:
    kinds = ("held", "not held", "undecided", "an input", "not testable")
    rows, sums = [], [0] * len(kinds)
    for name, scale in COMMITTED:
        page = f"{paper_of(name).folder}/{scale}/README.md"
        (said,) = re.findall(r"\d+ verdicts: (.*?)\.", (PAPERS / page).read_text())
        found = {kind: int(count) for count, kind in re.findall(r"(\d+) ([a-z ]+)", said)}
        counts = [found.pop(kind, 0) for kind in kinds]
        assert not found
        sums = [one + other for one, other in zip(sums, counts, strict=True)]
        rows.append((f"[{name}](../../papers/{page})", *counts))
    table = (PAPERS.parent / "docs/reproduction/README.md").read_text()
    for row in (*rows, ("all", *sums)):
        assert "| " + " | ".join(map(str, row)) + " |" in table
    assert f"**{sums[2]} claims are undecided**" in table
