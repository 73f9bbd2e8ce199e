"""The committed pages are those that the committed cells give."""

from dataclasses import replace
from pathlib import Path

import pytest

from fullrank_papers.cells import CELLS, Cell, CellOrigin, Later
from fullrank_papers.cli import paper_of

PAPERS = Path(__file__).resolve().parents[3] / "papers"


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("coded-maddpg", "standard"),
        ("darl1n", "standard"),
        ("cmarl", "smoke"),
        ("multi-gpu", "smoke"),
    ],
)
def test_the_committed_cells_are_whole_and_give_the_committed_page(
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
    assert page.read_text() == (committed / "README.md").read_text()
    assert "Not here yet" not in page.read_text()
    names = {cell.name for cells in planned.values() for cell in cells}
    assert origins == [CellOrigin.KEPT] * len(names)
    lines = (committed / CELLS).read_text().splitlines()
    assert lines == sorted(lines, key=lambda line: line.split('"')[3])
