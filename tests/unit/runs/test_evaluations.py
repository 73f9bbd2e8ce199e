"""The file with a run's evaluations."""

from pathlib import Path

from fullrank.runs.evaluations import EVALUATIONS, append, read_evaluations

PLAYED = {"mean": 1.0, "low": 0.0, "high": 2.0, "sides": {}}
FACTS = {"iteration": 3, "trained": PLAYED}


def test_an_evaluation_takes_the_place_of_a_line_that_a_crash_cut_off(tmp_path: Path) -> None:
    append(tmp_path, FACTS)
    with (tmp_path / EVALUATIONS).open("a") as file:
        file.write('{"iteration": 4, "ret')
    append(tmp_path, FACTS | {"iteration": 5})
    assert [each.iteration for each in read_evaluations(tmp_path)] == [3, 5]
