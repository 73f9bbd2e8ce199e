"""``fullrank codes show`` and ``check``: the share of wrong computations that digests expose."""

import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("code", "caught", "in_audits"),
    [
        (("cyclic", "--learners", "4", "--units", "3"), 0.5, 1.0),
        (("mds", "--learners", "5", "--units", "3"), 1.0, 1.0),
        (("replication", "--learners", "6", "--units", "3"), 2 / 3, 1.0),
        (("uncoded", "--learners", "3", "--units", "3"), 0.0, 0.0),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_show_tells_how_often_a_wrong_computation_is_caught(
    fullrank: Any, code: tuple[str, ...], caught: float, in_audits: float
) -> None:
    facts = json.loads(fullrank("codes", "show", *code, "--json").output)
    assert facts["caught"] == pytest.approx(caught)
    assert facts["caught_in_audits"] == in_audits
    text = " ".join(fullrank("codes", "show", *code).output.split())
    assert f"caught before the commit for {caught:.0%} of units and sets J" in text
