"""The dashboard says what the statistics of the library's algorithms mean."""

import re
from importlib.resources import files

from fullrank.algorithms import coma, on_policy, pqn, sac, trajectories
from fullrank.networks.fused import unit_batch

RECORDED = {
    *(coma.ENTRIES.names + on_policy.ENTRIES.names + pqn.ENTRIES.names),
    *(trajectories.ENTRIES.names + sac.STATISTICS + unit_batch.STATISTICS),
    *("grad_norm", "learning_rate"),
}


def test_every_statistic_of_an_update_has_a_meaning() -> None:
    page = files("fullrank_dashboard").joinpath("static", "learning.js").read_text()
    found = re.search(r"const MEANINGS = \{(.*?)\n\};", page, re.DOTALL)
    assert found is not None
    named = re.findall(r'(\w+): "[^"]+"', found[1])
    assert len(named) == len(set(named))
    assert set(named) >= RECORDED
