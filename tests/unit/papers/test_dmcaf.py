"""Claims of [DMCAF] on learning, on given curves, which ``fullrank reproduce dmcaf`` computes."""

from dataclasses import replace
from typing import Any

import pytest

from fullrank.wiring.plugins import algorithm_config_of
from fullrank_dmcaf import learning
from fullrank_dmcaf.learning import LEARNERS, PLAYING, POINTS
from fullrank_dmcaf.speed import SCALES
from fullrank_papers.claims import Held
from fullrank_papers.runs import configured

SCALE = replace(SCALES["standard"], seeds=(1, 2, 3))


def curves(**rates: float) -> dict[str, Any]:
    """Equal curves on all maps, with some difference between seeds."""
    return {
        f"learning-{name}-{system}-{seed}": {"won": [rates[system] + 0.001 * seed * place] * POINTS}
        for name in SCALE.learnt
        for place, system in enumerate(LEARNERS)
        for seed in SCALE.seeds
    }


@pytest.mark.parametrize(
    ("rates", "verdicts"),
    [
        ({"episode": 0.2, "aw": 0.3, "awl": 0.4, "coma": 0.1}, "HHH"),
        ({"episode": 0.4, "aw": 0.3, "awl": 0.2, "coma": 0.1}, "NNH"),
        ({"episode": 0.2, "aw": 0.3, "awl": 0.4, "coma": 0.35}, "HHN"),
    ],
)
def test_systems_are_ranked_on_each_map_and_all_are_ahead_of_coma(
    rates: dict[str, float], verdicts: str
) -> None:
    judged = learning.judge_learning(curves(**rates), SCALE)
    letters = {Held.HELD: "H", Held.NOT_HELD: "N"}
    assert "".join(letters.get(each.held, "-") for each in judged) == verdicts
    assert [each.claim[:2] for each in judged] == ["D4", "D4", "D5"]


def test_without_curves_both_claims_are_undecided() -> None:
    judged = learning.judge_learning({}, SCALES["smoke"])
    assert [(each.claim[:2], each.held) for each in judged] == [
        ("D4", Held.UNDECIDED),
        ("D5", Held.UNDECIDED),
    ]


@pytest.mark.parametrize("system", LEARNERS)
def test_every_system_is_configured(system: str) -> None:
    config = configured(*PLAYING[system], "environment.map=2s3z", "iterations=1")
    assert config.algorithm.name == ("coma" if system == "coma" else "qmix")
    assert algorithm_config_of(config) is not None
