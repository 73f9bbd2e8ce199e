"""Seeds that a reader names."""

from fullrank_papers.cli import paper_of, seeded


def test_named_seeds_take_the_place_of_all_others() -> None:
    """Those by which a comparison has more seeds than others, too."""
    paper = paper_of("darl1n")
    planned = paper.parts["grassland"](seeded(paper.scales["standard"], (901, 902, 903)))
    assert {cell.name.rpartition("seed")[2] for cell in planned} == {"901", "902", "903"}
