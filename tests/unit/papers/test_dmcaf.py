"""Claims of [DMCAF] on given curves and rates, which ``fullrank reproduce dmcaf`` computes."""

from dataclasses import replace
from typing import Any

import pytest

from fullrank.wiring.plugins import algorithm_config_of
from fullrank_dmcaf import learning, speed
from fullrank_dmcaf.learning import LEARNERS, STEPS, TIME, course_config
from fullrank_dmcaf.speed import SCALES, SCENARIOS, SYSTEMS, durations_of
from fullrank_papers.claims import ClaimResult, Held, Whose
from fullrank_papers.virtual import CHANNELS

MAPS = {"3m": 10_000, "2s3z": 10_000}
SCALE = replace(SCALES["standard"], seeds=(1, 2, 3), learnt=MAPS, in_time={}, beside_coma={})
LETTERS = {Held.HELD: "H", Held.NOT_HELD: "N"}


def letters(judged: list[ClaimResult]) -> str:
    return "".join(LETTERS.get(each.held, "-") for each in judged)


def curves(scale: speed.DmcafScale, **rates: tuple[float, float]) -> dict[str, Any]:
    """Returns over steps and over time, from 0, equal on all maps, with a difference of seeds."""
    return {
        f"learning-{name}-{system}-{seed}": {
            series: [
                [
                    {"return_mean": gained * (20 * rate + 0.001 * seed * place)}.get(channel, 1)
                    for channel in CHANNELS
                ]
                for gained in (0.0, 1.0)
            ]
            for series, rate in zip((STEPS, TIME), rates[system], strict=True)
        }
        for name in scale.learnt
        for place, system in enumerate(LEARNERS)
        for seed in scale.seeds
    }


@pytest.mark.parametrize(
    ("rates", "by_steps", "by_time", "apart"),
    [
        (
            {"episode": (0.2, 0.2), "aw": (0.3, 0.3), "awl": (0.4, 0.4), "coma": (0.1, 0)},
            "HHH",
            "HH",
            "HHH",
        ),
        (
            {"episode": (0.4, 0.2), "aw": (0.3, 0.3), "awl": (0.2, 0.4), "coma": (0.1, 0)},
            "NNH",
            "HH",
            "NHH",
        ),
        (
            {"episode": (0.2, 0.4), "aw": (0.4, 0.3), "awl": (0.3, 0.2), "coma": (0.25, 0)},
            "HHN",
            "NN",
            "HNN",
        ),
    ],
)
def test_steps_decide_d4_and_d5_and_time_decides_d9(
    rates: dict[str, tuple[float, float]], by_steps: str, by_time: str, apart: str
) -> None:
    learnt = {**SCALE.learnt, "smax-3m": SCALE.learnt["3m"]}
    scale = replace(SCALE, learnt=learnt)
    judged = learning.judge_learning(curves(scale, **rates), scale)
    assert {source: letters(each) for source, each in judged.items()} == {
        "Fig. 8": by_steps + by_time,
        "SMAX": apart,
    }
    claims = [each.claim.partition(":")[0] for found in judged.values() for each in found]
    assert claims == ["D4", "D4", "D5", "D9", "D9", "D4", "D5", "D9"]
    assert {each.whose for each in judged["SMAX"]} == {Whose.OURS}


def test_who_learns_sooner_is_undecided_where_no_team_earns_more_than_untrained() -> None:
    learnt = {"episode": (0.4, 0.4), "aw": (0.3, 0.3), "awl": (0.2, 0.2), "coma": (0.1, 0.0)}
    found = curves(SCALE, **learnt)
    for name in SCALE.learnt:  # every team begins with what Qmix's ends with
        for seed in SCALE.seeds:
            points = found[f"learning-{name}-episode-{seed}"][TIME]
            points[0] = points[1]
    (judged,) = learning.judge_learning(found, SCALE).values()
    assert letters(judged) == "--H--"


def test_without_curves_both_claims_are_undecided() -> None:
    (judged,) = learning.judge_learning({}, SCALES["smoke"]).values()
    assert [(each.claim[:2], each.held) for each in judged] == [
        ("D4", Held.UNDECIDED),
        ("D5", Held.UNDECIDED),
    ]


@pytest.mark.parametrize("system", LEARNERS)
def test_every_system_is_configured(system: str) -> None:
    config = course_config("2s3z", system, 1)
    assert config.algorithm.name == ("coma" if system == "coma" else "qmix")
    assert algorithm_config_of(config) is not None


def rates(**episodes: float) -> dict[str, Any]:
    """Predicted rates of all maps, and those of services."""
    predicted = {
        f"predicted-{name}-{system}": {"episodes_per_s": episodes[system], "updates_per_s": 1.0}
        for name in SCALE.maps
        for system in SYSTEMS
    }
    served = {
        speed.served_name(SCALE.served, system, turn): {
            "episodes_per_s": episodes[f"served_{system}"] + 0.01 * turn,
            "updates_per_s": 1.0,
            "iterations": 20,
        }
        for turn in range(SCALE.turns)
        for system in speed.SERVED
    }
    return predicted | served


@pytest.mark.parametrize(
    ("episodes", "verdicts"),
    [
        ({"awl": 6.8, "served_episode": 0.95, "served_awl": 6.4}, "H--"),
        ({"awl": 6.8, "served_episode": 0.95, "served_awl": 5.78}, "H--"),
        ({"awl": 16.0, "served_episode": 1.0, "served_awl": 13.0}, "NN-"),
        ({"awl": 4.0, "served_episode": 0.8, "served_awl": 3.0}, "N--"),  # too slow a machine
    ],
)
def test_throughput_is_judged_on_both_sides(episodes: dict[str, float], verdicts: str) -> None:
    judged = speed.judge_speed(rates(episode=1.0, aw=1.8, **episodes), SCALE)
    assert letters(judged) == verdicts
    assert [each.claim.partition(":")[0] for each in judged] == ["D2", "D10", "D3"]


def test_actors_of_aw_stand_still_while_their_worker_updates() -> None:
    """Table III's AW follows from its durations: 4 episodes in p + 4 (1 - p) iterations of Qmix."""
    length = 20.0
    cell = speed._predicted_cell("3m", "aw", 8, {"length-3m": {"steps": length}})
    assert cell.settings["durations"]["holds"]
    assert not durations_of("3m", "awl", length).holds
    found = cell.compute()
    assert found["updates_per_s"] == pytest.approx(SCENARIOS["3m"].ratio("aw"), rel=0.25)
    assert found["episodes_per_s"] == pytest.approx(found["updates_per_s"], rel=0.3)
