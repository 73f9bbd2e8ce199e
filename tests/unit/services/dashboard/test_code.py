"""The dashboard's view of C: rows that hold a unit."""

from dataclasses import replace

import numpy as np

from fullrank.net.status import CodeInUse
from fullrank_dashboard.view import code_facts

CODE = CodeInUse(
    epoch=0,
    name="cyclic",
    parameters={},
    matrix=np.eye(4, 3),
    tolerance=0,
    certificate="exact",
    holders={0: 5, 1: 5, 2: 7, 3: 7},
    plan=None,
)
"""A code of two rows for each of two learners, the last of which is empty."""


def test_a_row_without_a_unit_is_not_shown() -> None:
    facts = code_facts(CODE)
    assert facts["matrix"] == np.eye(3).tolist()
    assert facts["holders"] == [5, 5, 7]
    assert code_facts(replace(CODE, holders={0: 5, 1: 5}))["holders"] == [5, 5, None]
