"""The list of planted faults is true of today's sources; `python -m tests.planted` plants them."""

from pathlib import Path

import pytest
from tests.planted import Planted, faults

ROOT = Path(__file__).resolve().parents[3]


def test_faults_have_names_of_their_own() -> None:
    named = [(fault.area, fault.name) for fault in faults()]
    assert len({*named}) == len(named)


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_finds_its_line_and_its_test(fault: Planted) -> None:
    source = (ROOT / fault.file).read_text()
    assert source.count(fault.before) == 1
    assert fault.after != fault.before
    file, _, name = fault.test.partition("::")
    assert f"def {name.partition('[')[0].rpartition('::')[2]}(" in (ROOT / file).read_text()
