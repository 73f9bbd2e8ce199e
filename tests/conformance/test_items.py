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
    column, size, lengths = None, problem.data.batch_size, np.ones(len(rows), np.int64)
    if problem.episodes is not None:
        column = problem.episodes.length
        lengths = np.array([place.stop - place.start for place in episodes_in(rows, column)])
    read = sorted(item for items in problem.items for item in items)
    assert read == sorted([*range(size)] * (len(read) // size))
    assert problem.items_of(units) is None
    for unit in units:
        items = problem.items_of([unit]) or tuple(range(size))
        own = spread(rows[rows_of_items(lengths, items)], lengths, items, length_column=column)
        assert computed(algorithm, own.rows, [unit]) == computed(algorithm, rows, [unit])
