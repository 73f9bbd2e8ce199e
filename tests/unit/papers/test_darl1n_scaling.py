"""Fig. 2 of [DARL1N]: timing of iterations, and claims about their growth."""

from collections.abc import Iterator

import pytest

from fullrank.common.types import JSON
from fullrank.local import LocalIteration, LocalRun
from fullrank_darl1n import scaling
from fullrank_darl1n.published import ENGINE_METHODS
from fullrank_darl1n.scaling import judge_scaling
from fullrank_papers.claims import Held


def times_like(exponents: dict[str, float]) -> JSON:
    """Times of teams of 6, 12 and 48 in two rounds, equal for all methods at 12."""
    return {
        method: [[9.0, 9.0], [1.0, 2.0], [4.0**power, 2.0 * 4.0**power]]
        for method, power in exponents.items()
    }


LINEAR = {"maddpg": 2.0, "mfac": 1.8, "darl1n": 1.0, scaling.APART: 0.3}


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        (0, {scaling.APART: 1.3}),
        (1, {"mfac": 0.3}),
        (2, {"darl1n": 1.3}),
        (3, {"maddpg": 0.2}),
        (4, {"maddpg": 0.9}),
    ],
)
def test_claims_on_growth_are_judged_by_the_larger_teams(
    claim: int, changed: dict[str, float]
) -> None:
    teams = (6, 12, 48)
    good, bad = (judge_scaling(teams, times_like(each)) for each in (LINEAR, LINEAR | changed))
    assert {each.held for each in good} == {Held.HELD}
    assert bad[claim].held is Held.NOT_HELD


def test_growth_that_is_linear_in_some_rounds_alone_is_not_held() -> None:
    unsteady = times_like(LINEAR) | {scaling.APART: [[9.0, 9.0], [1.0, 1.0], [4.0**0.8, 4.0**1.3]]}
    linear, *_ = judge_scaling((6, 12, 48), unsteady)
    assert linear.held is Held.NOT_HELD
    assert linear.reason == "from 12 to 48 agents as M^1.05 (0.80 to 1.30)"


def test_methods_and_teams_are_timed_in_turns_after_an_iteration_that_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[tuple[str, int]] = []

    class Played(LocalRun):
        def __iter__(self) -> Iterator[LocalIteration]:
            config = self._config
            for iteration in super().__iter__():
                played.append((config.algorithm.name, config.environment.agents))
                yield iteration

    monkeypatch.setattr(scaling, "LocalRun", Played)
    monkeypatch.setattr(scaling, "BATCH", 16)
    monkeypatch.setattr(scaling, "process_time", lambda: float(len(played)))
    spent = scaling.measured((3, 6), 2)
    assert played == [(method, agents) for agents in (3, 6) for method in ENGINE_METHODS] * 3
    assert spent == {
        method: [[float(method in ENGINE_METHODS)] * 2] * 2
        for method in (*ENGINE_METHODS, scaling.APART)
    }


def test_learners_apart_take_as_long_as_the_slowest_and_the_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter([0.0, 1.0, 10.0, 13.0, 20.0, 22.0, 30.0, 30.5])  # three units, then Adam
    run = LocalRun(scaling.config("darl1n", 3, 1), coded=False)
    monkeypatch.setattr(scaling, "process_time", lambda: next(seconds))
    assert scaling._apart(run, 0) == 3.5
