import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.traffic import row_traffic, sections_of, support
from fullrank.updates import DIGEST_BYTES

SIZES = [5, 7, 11, 13]
NEEDS = {0: [0, 3], 1: [1, 3], 2: [2, 3]}


def test_a_shared_section_is_sent_once() -> None:
    assert sections_of([0, 2], NEEDS.__getitem__) == [0, 2, 3]
    traffic = row_traffic(
        [0, 2], needs=NEEDS.__getitem__, section_sizes=SIZES, vector_size=9, batch_entries=100
    )
    assert traffic.parameters == 4 * (5 + 11 + 13)
    assert traffic.sample == 4 * 100
    assert traffic.digests == 2 * DIGEST_BYTES
    assert traffic.coded == 8 * 9


def test_support_lists_the_units_of_a_row() -> None:
    assert support(np.array([0.0, -2.0, 0.0, 1e-300])) == [1, 3]


@given(units=st.sets(st.sampled_from(sorted(NEEDS))), added=st.sampled_from(sorted(NEEDS)))
def test_one_more_unit_never_costs_more_than_its_own_sections(units: set[int], added: int) -> None:
    def parameters(chosen: set[int]) -> int:
        return row_traffic(
            sorted(chosen),
            needs=NEEDS.__getitem__,
            section_sizes=SIZES,
            vector_size=1,
            batch_entries=1,
        ).parameters

    more = parameters(units | {added}) - parameters(units)
    assert 0 <= more <= parameters({added})
