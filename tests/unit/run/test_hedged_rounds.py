"""Hedged rounds commit the bits of the centralised run, whoever is late, dies or answers first."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.run.builders import SIZE, Host, opened, team_of

from fullrank.codes import Code, codes
from fullrank.codes.learner_codes import code_for_learners
from fullrank.codes.targets import sum_of_units
from fullrank.common.errors import CodeError
from fullrank.common.updates import snap
from fullrank.run.round_orders import Commit, Fail, GraceEnded, MembershipChanged

EVENTS = 60
"""Most events that are drawn; then what is held is sent in order."""


@st.composite
def codes_of_runs(draw: st.DrawFn) -> Code:
    """Codes of 1 to 16 learners for units, or for their sum."""
    units, learners = draw(st.sampled_from((1, 3, 8, 32))), draw(st.integers(1, 16))
    target = sum_of_units(units) if draw(st.booleans()) else None
    family = codes.build(draw(st.sampled_from(("uncoded", "cyclic", "fractional", "mds"))))
    try:
        return code_for_learners(family, learners=learners, units=units, seed=0, target=target)
    except CodeError:
        assume(False)
        raise


@given(code=codes_of_runs(), data=st.data())
def test_a_hedged_round_commits_the_bits_of_all_units_while_one_learner_is_left(
    code: Code, data: st.DataObject
) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    updates = list(snap(generator.uniform(-0.5, 0.5, (code.units, SIZE)).astype(np.float32)))
    team = team_of(code.learners)
    round_ = opened(team, code)
    host = Host(round_, team)

    def held() -> list[int]:
        return sorted(round_.assignment.holders.keys() - round_.round.rows)

    def over() -> bool:
        return any(isinstance(order, (Commit, Fail)) for order in host.orders)

    for _ in range(data.draw(st.integers(0, EVENTS))):
        event = data.draw(st.sampled_from(("send", "send", "send", "die", "late")))
        if over():
            break
        if event == "late":
            host.tell(GraceEnded())
        elif event == "die" and len(team.members) > 1:
            team.members.pop(data.draw(st.integers(0, len(team.members) - 1)))
            host.tell(MembershipChanged())
        elif rows := held():
            host.sends(data.draw(st.sampled_from(rows)), updates)
    host.tell(GraceEnded())
    while (rows := held()) and not over():
        host.sends(rows[0], updates)
    exact = code.target @ np.stack(updates).astype(np.float64)
    assert host.decision.exact
    np.testing.assert_array_equal(host.decision.updates, exact.astype(np.float32))
