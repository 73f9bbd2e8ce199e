import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.algorithms import EnvironmentSpec, algorithms
from fullrank.codes import make_code
from fullrank.common.updates import DIGEST_BYTES
from fullrank.environments import AgentSpec, Discrete
from fullrank.planning.costs import Payload, Traffic, entry_bytes, sections_of

SIZES = (5, 7, 11, 13)
NEEDS = {0: [0, 3], 1: [1, 3], 2: [2, 3]}


def of(*rows: set[int]) -> Traffic:
    """Traffic of a matrix with these supports."""
    matrix = np.array([[float(unit in row) for unit in NEEDS] for row in rows])
    payload = Payload(
        section_sizes=SIZES, needs=NEEDS.__getitem__, vector_size=9, batch_entries=100
    )
    return payload.traffic(matrix)


def test_a_shared_section_is_sent_once() -> None:
    assert sections_of([0, 2], NEEDS.__getitem__) == [0, 2, 3]
    moved = of({0, 2}, {1})
    assert moved.parameters.tolist() == [4 * (5 + 11 + 13), 4 * (7 + 13)]
    assert moved.sample.tolist() == [4 * 100] * 2
    assert moved.digests.tolist() == [2 * DIGEST_BYTES, DIGEST_BYTES]
    assert moved.coded.tolist() == [8 * 9, 4 * 9]


def test_only_the_vector_of_a_lone_unit_as_it_is_takes_four_bytes_an_entry() -> None:
    rows = np.array([[0.0, 1.0], [0.5, 0.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert entry_bytes(rows).tolist() == [4, 8, 8, 8, 0]
    assert Payload(vector_size=9).traffic(rows[None]).coded.tolist() == [28 * 9]


def test_a_row_is_charged_for_the_items_that_its_units_read() -> None:
    agents = tuple(AgentSpec(name=f"{i}", observation_size=4, action=Discrete(3)) for i in range(2))
    config = algorithms.build("qmix", batch_size=8, micro_batches=4)
    problem = config.problem(EnvironmentSpec(agents=agents))
    matrix = make_code("fractional", rows=8, units=4, tolerance=1).matrix
    moved = Payload.of(problem).traffic(matrix)
    assert moved.sample.tolist() == [4 * 2 * problem.row_size] * 8


@given(rows=st.lists(st.sets(st.sampled_from(sorted(NEEDS))), min_size=1, max_size=5))
def test_parameters_are_the_sections_that_the_units_need(rows: list[set[int]]) -> None:
    expected = [
        4 * sum(SIZES[section] for section in sections_of(sorted(row), NEEDS.__getitem__))
        for row in rows
    ]
    assert of(*rows).parameters.tolist() == expected
