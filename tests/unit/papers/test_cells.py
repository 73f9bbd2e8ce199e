"""Cells are computed once, kept one a line, and computed again where their line is of no use."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fullrank.common.types import JSON
from fullrank_papers.cells import CELLS, Cell, CellOrigin, CellStore, Later, Results, gather
from fullrank_papers.paper import filled, table


def counted(name: str, calls: list[str], *, settings: JSON | None = None) -> Cell:
    def compute() -> JSON:
        calls.append(name)
        return {"value": [len(calls), None]}

    return Cell(name=name, settings=settings or {"seed": 0}, compute=compute)


def origins(
    cells: list[Cell | Later], directory: Path, *, others: tuple[Path, ...] = ()
) -> list[CellOrigin]:
    found: list[CellOrigin] = []
    gather(
        cells,
        CellStore(directory),
        chosen={cell.name for cell in cells},
        done=lambda _, origin: found.append(origin),
        others=[CellStore(other) for other in others],
    )
    return found


def test_a_cell_is_computed_once_and_kept_as_one_line_in_order_of_names(tmp_path: Path) -> None:
    calls: list[str] = []
    cells: list[Cell | Later] = [counted("b", calls), counted("a", calls)]
    assert origins(cells, tmp_path) == [CellOrigin.COMPUTED] * 2
    lines = (tmp_path / CELLS).read_text().splitlines()
    assert [json.loads(line)["cell"] for line in lines] == ["a", "b"]
    assert origins(cells, tmp_path) == [CellOrigin.KEPT] * 2
    assert calls == ["b", "a"]
    assert (tmp_path / CELLS).read_text().splitlines() == lines


def test_a_stop_costs_the_running_cell_alone(tmp_path: Path) -> None:
    calls: list[str] = []

    def interrupted() -> JSON:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        origins([counted("a", calls), Cell(name="b", settings={}, compute=interrupted)], tmp_path)
    cells: list[Cell | Later] = [counted("a", calls), counted("b", calls)]
    assert origins(cells, tmp_path) == [CellOrigin.KEPT, CellOrigin.COMPUTED]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-3],
        lambda text: text.replace("null", "1"),
        lambda text: json.dumps({"cell": "a", "settings": {"seed": 0}}),
    ],
)
def test_a_damaged_line_is_computed_again_and_said_so(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    calls: list[str] = []
    origins([counted("a", calls), counted("b", calls)], tmp_path)
    first, second = (tmp_path / CELLS).read_text().splitlines()
    (tmp_path / CELLS).write_text(f"{damage(first)}\n{second}\n")
    cells: list[Cell | Later] = [counted("a", calls), counted("b", calls)]
    assert origins(cells, tmp_path) == [CellOrigin.DAMAGED, CellOrigin.KEPT]
    assert origins(cells, tmp_path) == [CellOrigin.KEPT] * 2


def test_settings_that_went_or_came_with_their_default_do_not_count(tmp_path: Path) -> None:
    algorithm = {"name": "qmix", "hidden": 64}
    run = {"environment": {"name": "smac_lite"}, "algorithm": algorithm, "old": 1}
    cell = partial(counted, "a", [])
    origins([cell(settings={"run": run})], tmp_path)
    for settings, origin in (
        (run | {"name": "", "algorithm": algorithm | {"td_errors": False}}, CellOrigin.KEPT),
        ({"environment": {"name": "smac_lite"}, "algorithm": algorithm}, CellOrigin.KEPT),
        (run | {"algorithm": algorithm | {"td_errors": True}}, CellOrigin.CHANGED),
    ):
        assert origins([cell(settings={"run": settings})], tmp_path) == [origin]


def test_a_setting_that_changed_counts_and_so_does_a_new_one_without_a_known_default(
    tmp_path: Path,
) -> None:
    cell = partial(counted, "a", [])
    origins([cell(settings={"run": {"seed": 0, "old": 1}, "runs": [{"a": 1}]})], tmp_path)
    for settings, origin in (
        ({"run": {"seed": 0}, "runs": [{"a": 1}]}, CellOrigin.KEPT),
        ({"run": {"seed": 0}}, CellOrigin.KEPT),
        ({"run": {"seed": 0}, "runs": [{"a": 1, "b": 2}]}, CellOrigin.CHANGED),
        ({"run": {"seed": 0}, "runs": [{"a": 2}]}, CellOrigin.CHANGED),
        ({"run": {"seed": 1}}, CellOrigin.CHANGED),
    ):
        assert origins([cell(settings=settings)], tmp_path) == [origin]


def test_a_cell_follows_those_that_it_needs_and_waits_for_those_that_are_not_chosen(
    tmp_path: Path,
) -> None:
    def made(results: Results) -> Cell:
        return Cell(name="sum", settings=results["a"], compute=lambda: {"of": results["a"]})

    planned: list[Cell | Later] = [Later(name="sum", needs=("a",), make=made), counted("a", [])]
    assert gather(planned, CellStore(tmp_path), chosen={"sum"}) == {}
    found = gather(planned, CellStore(tmp_path), chosen={"sum", "a"})
    assert found == {"a": {"value": [1, None]}, "sum": {"of": {"value": [1, None]}}}
    assert list(found) == ["sum", "a"]


def test_a_page_leaves_out_the_sections_without_values() -> None:
    page = "# Of {name}\n\n## One\n\n{one.real:g}\n\n## Two\n\n{two}\n"
    assert filled(page, {"name": "all", "one": 1.5}) == "# Of all\n\n## One\n\n1.5\n\n"
    assert table(["a", ""], [[1, ""]]) == "| a | |\n|---|---|\n| 1 | |"
