"""Seeds that a reader names."""

from pathlib import Path
from typing import Any

import pytest

from fullrank_papers import cli
from fullrank_papers.cli import paper_of, seeded
from fullrank_papers.paper import Paper


def test_named_seeds_take_the_place_of_all_others() -> None:
    """Those by which a comparison has more seeds than others, too."""
    paper = paper_of("darl1n")
    planned = paper.parts["grassland"](seeded(paper.scales["standard"], (901, 902, 903)))
    assert {cell.name.rpartition("seed")[2] for cell in planned} == {"901", "902", "903"}


def test_named_seeds_have_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of the scale's own seeds stays as it is; its results of equal cells count."""
    written, paper = list[tuple[Path, list[Path]]](), paper_of("dmcaf")

    def write(*arguments: Any, others: list[Path], **options: Any) -> Path:
        written.append((arguments[4], others))
        return Path("page.md")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Paper, "reproduce", write)
    cli.reproduce(cli.PaperName.DMCAF, cli.ScaleName.STANDARD, seeds="7, 9,8")
    cli.reproduce(cli.PaperName.DMCAF, cli.ScaleName.STANDARD)
    home = Path("papers") / paper.folder
    (apart, others), (own, _) = written
    assert (apart, own) == (home / "standard-7-9-8", home / "standard")
    assert own in others
