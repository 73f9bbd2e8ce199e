"""Each unit reads the items of the minibatch that its problem names, and no other."""

import numpy as np

from fullrank.replay.episodes import episodes_in
from fullrank.replay.items import rows_of_items, spread

from .algorithm_cases import build, computed, transitions, units_of


def test_a_unit_reads_no_item_of_the_minibatch_beyond_its_own(name: str) -> None:
    algorithm, rows = build(name), transitions(name, 100)
    problem, units = algorithm.problem, units_of(algorithm)
    if problem.items is None:
        assert problem.items_of(units) is None
        return
    assert problem.episodes is not None
    column, size = problem.episodes.length, problem.data.batch_size
    lengths = np.array([place.stop - place.start for place in episodes_in(rows, column)])
    assert sorted(item for items in problem.items for item in items) == list(range(size))
    assert problem.items_of(units) is None
    for unit in units:
        items = problem.items_of([unit]) or tuple(range(size))
        own = spread(rows[rows_of_items(lengths, items)], lengths, items, length_column=column)
        assert computed(algorithm, own.rows, [unit]) == computed(algorithm, rows, [unit])
