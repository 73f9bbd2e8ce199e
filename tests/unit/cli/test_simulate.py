"""``fullrank simulate``: codes are compared in virtual time, and swept with their limits."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.faultlab.simulation import toy_algorithm

from fullrank.cli.sweep import DELAYS, LEARNERS, draw, sweep
from fullrank.codes import Code, make_code
from fullrank.planning import simulation
from fullrank.planning.cluster import Cluster
from fullrank.planning.costs import Payload
from fullrank.stragglers import FixedK

assert toy_algorithm  # importing it registers the algorithm


@pytest.fixture
def run(fullrank: Any) -> Callable[..., str]:
    """``run(*words)`` simulates and returns the printed output or the error."""

    def simulate(*words: str) -> str:
        outcome = fullrank("simulate", "--iterations", "40", *words)
        printed: str = outcome.error if outcome.code else outcome.output
        return printed

    return simulate


SIZES = ("--learners", "15", "--agents", "8")


def test_it_compares_the_codes_asked_for(run: Callable[..., str]) -> None:
    codes = ("--code", "uncoded", "--code", "cyclic,tolerance=2")
    straggling = ("--stragglers", "2", "--delay", "3", "--unit-s", "0.5")
    found = json.loads(run(*SIZES, *codes, *straggling, "--json"))
    assert list(found) == ["uncoded", "cyclic,tolerance=2"]
    uncoded, cyclic = found.values()
    assert cyclic["waited"] == 0 < uncoded["waited"]
    assert cyclic["p95_s"] <= 0.5 * cyclic["load_max"]
    assert uncoded["p95_s"] == 3.5
    assert uncoded["sent_bytes"] == 0  # wires cost nothing unless a bandwidth is given


def test_a_round_that_waits_for_an_absent_learner_never_ends(run: Callable[..., str]) -> None:
    words = (*SIZES, "--code", "uncoded", "--code", "cyclic,tolerance=4")
    away = ("--set", "stragglers.name=absence", "--set", "stragglers.mean_iterations=20")
    uncoded, cyclic = json.loads(run(*words, *away, "--json")).values()
    assert uncoded["p95_s"] is None
    assert cyclic["median_s"] is not None
    shown = run(*words, *away)
    assert "never" in next(line for line in shown.splitlines() if "uncoded" in line)


def test_by_default_all_codes_that_exist_for_the_sizes_are_compared(
    run: Callable[..., str],
) -> None:
    found = json.loads(run(*SIZES, "--json"))
    assert {"uncoded", "replication", "mds", "cyclic", "ldpc", "fractional"} <= set(found)
    assert "cyclic" not in json.loads(run("--learners", "1", "--agents", "3", "--json"))


@pytest.mark.parametrize("option", ["--unit-s", "--spread", "--latency"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_times_that_are_no_numbers_are_refused(
    run: Callable[..., str], option: str, value: str
) -> None:
    assert "must be finite and not negative" in run(*SIZES, "--code", "cyclic", option, value)


def test_hedged_rounds_are_compared_by_name(run: Callable[..., str]) -> None:
    straggling = (*SIZES, "--stragglers", "2", "--delay", "3", "--unit-s", "0.5", "--json")
    found = json.loads(run(*straggling))
    assert found["uncoded,hedged"]["p95_s"] < 2.0 < 3.0 < found["uncoded"]["p95_s"]
    asked = json.loads(run(*straggling, "--code", "cyclic,tolerance=1,hedged"))
    assert asked["cyclic,tolerance=1,hedged"]["p95_s"] < found["cyclic"]["p95_s"]


SUM = ("--set", "algorithm.name=summed_toy")


def test_codes_recover_what_the_configured_algorithm_asks_for(run: Callable[..., str]) -> None:
    sizes = ("--learners", "6", "--agents", "4", "--stragglers", "3", "--delay", "9", "--json")
    each, summed = json.loads(run(*sizes)), json.loads(run(*sizes, *SUM))
    assert summed["fractional"]["load_max"] <= each["fractional"]["load_max"]
    two = ("--code", "fractional,tolerance=2")
    assert json.loads(run(*sizes, *SUM, *two))[two[1]]["received_mean"] <= 4


def test_a_bandwidth_makes_the_configured_algorithm_cost_its_bytes(
    run: Callable[..., str],
) -> None:
    words = ("--code", "uncoded", "--bandwidth", "1e6", "--unit-s", "0", "--json")
    small = ("--agents", "3", "--set", "algorithm.hidden=16", "--set", "algorithm.batch_size=32")
    large = ("--agents", "3", "--set", "algorithm.hidden=64", "--set", "algorithm.batch_size=32")
    cheap, dear = (json.loads(run(*words, *size))["uncoded"] for size in (small, large))
    assert 0 < cheap["sent_bytes"] < dear["sent_bytes"]
    assert dear["median_s"] > dear["sent_bytes"] / 1e6


def test_learners_with_samples_of_their_own_are_waited_for_until_the_variance_is_low(
    run: Callable[..., str],
) -> None:
    darl1n = ("--set", "environment.name=food_collection", "--set", "algorithm.name=darl1n")
    own = (*darl1n, "--set", "algorithm.data=independent")
    everybody = (*own, "--set", "algorithm.max_variance=0.0")
    mds = ("--code", "mds", "--spread", "0.2", "--json")
    needed = [
        json.loads(run(*SIZES, *mds, *settings))["mds"]["received_mean"]
        for settings in (darl1n, own, everybody)
    ]
    assert needed[0] == 8 < needed[1] < needed[2] == 15
    assert "40 rounds, noise at most 2" in run(*SIZES, *own, "--code", "mds")


def test_learners_that_may_lie_are_waited_for_until_enough_agree(
    run: Callable[..., str],
) -> None:
    sizes = ("--learners", "6", "--agents", "3", "--stragglers", "2", "--delay", "9", "--json")
    codes = ("--code", "cyclic,tolerance=2", "--code", "cyclic,tolerance=3")
    trusted = json.loads(run(*sizes, *codes))
    doubted = json.loads(run(*sizes, *codes, "--set", "audit.byzantine=1"))
    assert trusted["cyclic,tolerance=2"]["waited"] == 0 < doubted["cyclic,tolerance=2"]["waited"]
    assert doubted["cyclic,tolerance=3"]["waited"] == 0
    everyone = json.loads(run(*sizes, *codes, "--set", "audit.byzantine=2"))
    assert everyone["cyclic,tolerance=3"]["waited"] > 0


def test_a_code_that_never_decodes_spares_the_others(run: Callable[..., str]) -> None:
    words = ("--learners", "40", "--agents", "20", "--code", "vandermonde", "--code", "uncoded")
    found = json.loads(run(*words, "--json"))
    assert found["vandermonde"]["median_s"] is None
    assert found["uncoded"]["median_s"] > 0
    assert "never" in run(*words)


def test_the_table_of_a_sum_names_its_units(run: Callable[..., str]) -> None:
    team = ("--set", "algorithm.name=qmix", "--set", "algorithm.micro_batches=3")
    printed = run(*team, "--learners", "6", "--code", "fractional")
    assert "6 learners, 3 units in 1 sum, 40 rounds" in printed


def test_agents_that_are_not_given_are_the_environments_own(run: Callable[..., str]) -> None:
    assert "15 learners, 3 agents" in run(*SIZES, "--agents", "0")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--code", "cyclic,tolerance"), "expected NAME,KEY=NUMBER"),
        (("--code", "cyclic,tolerance=99"), "tolerance"),
        (
            ("--code", "cyclic,tolerance=1.5"),
            "code.tolerance = 1.5 in --code cyclic,tolerance=1.5: must be a valid integer",
        ),
        (("--code", "cyclic,tolerance=null"), "code.tolerance = None in --code cyclic,tol"),
        (("--code", "cyclic,tolerance=true,hedged"), "code.tolerance = True in --code cyclic,tol"),
        (("--code", 'ldgm,density="x"'), "code.density = 'x' in --code ldgm,density"),
        (("--code", "cyclc"), "did you mean 'cyclic'"),
        (("--bandwidth", "0"), "bandwidth"),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...], complaint: str, run: Callable[..., str]
) -> None:
    printed = run(*SIZES, *words)
    assert complaint in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.integration
def test_a_sweep_is_drawn_with_its_limits(run: Callable[..., str], tmp_path: Path) -> None:
    picture = tmp_path / "sweep.png"
    wires = ("--bandwidth", "1e9", "--stragglers", "2", "--delay", "1")
    codes = ("--code", "uncoded", "--code", "cyclic,tolerance=2")
    assert run(*SIZES, *codes, *wires, "--sweep", str(picture)).strip() == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_sweep_needs_stragglers_to_vary(run: Callable[..., str], tmp_path: Path) -> None:
    assert "give --stragglers" in run(*SIZES, "--sweep", str(tmp_path / "sweep.png"))


def test_a_sweep_of_hedged_rounds_is_refused(run: Callable[..., str], tmp_path: Path) -> None:
    words = ("--code", "uncoded,hedged", "--stragglers", "2", "--delay", "1")
    assert "leave ,hedged out" in run(*SIZES, *words, "--sweep", str(tmp_path / "sweep.png"))


def test_a_sweep_says_why_a_code_exists_nowhere(run: Callable[..., str], tmp_path: Path) -> None:
    words = ("--code", "cyclic,tolerance=-1", "--stragglers", "1", "--delay", "0.1")
    picture = tmp_path / "sweep.png"
    assert "needs tolerance >= 0" in run(*SIZES, *words, "--sweep", str(picture))
    assert not picture.exists()


PAYLOAD = Payload(
    section_sizes=(1000,) * 4, needs=lambda unit: (unit,), vector_size=500, batch_entries=10
)


def codes_for(learners: int) -> Iterator[tuple[str, Code]]:
    for name in ("uncoded", "replication"):
        yield name, make_code(name, rows=learners, units=4)


def test_no_round_is_shorter_than_its_limits() -> None:
    cluster = Cluster(unit_s=0.01, bandwidth=1e6, replay_bandwidth=1e6, payload=PAYLOAD)
    late = FixedK(k=2, delay_s=0.5)
    play = partial(simulation.simulate, seed=0)
    swept = sweep(play, cluster, codes_for, learners=15, stragglers=late, iterations=10)
    assert list(swept) == ["learners", "stragglers", "delay, seconds"]
    learners, stragglers, delays = swept.values()
    assert sorted(learners["replication"]) == list(LEARNERS)
    assert sorted(stragglers["uncoded"]) == list(range(8))
    assert sorted(delays["uncoded"]) == [0.5 * factor for factor in DELAYS]
    for curves in swept.values():
        for points in curves.values():
            assert all(p.round_s >= max(p.link_s, p.decode_s) > 0 for p in points.values())
    assert learners["replication"][4096].link_s > 100 * learners["replication"][32].link_s
    assert len(draw(swept, title="").axes) == 3


def test_a_sweep_leaves_out_teams_of_fewer_learners_than_stragglers() -> None:
    swept = sweep(
        partial(simulation.simulate, seed=0),
        Cluster(),
        lambda learners: [("uncoded", make_code("uncoded", rows=learners, units=4))],
        learners=64,
        stragglers=FixedK(k=32, delay_s=0.5),
        iterations=1,
    )
    assert sorted(swept["learners"]["uncoded"]) == [32, 64, 128, 256, 512, 1024, 2048, 4096]
    assert swept["learners"]["uncoded"][32].round_s == 0.5


def test_a_limit_of_noise_holds_in_a_sweep_too() -> None:
    swept = sweep(
        partial(simulation.simulate, seed=0, max_variance=0.0),
        Cluster(),
        lambda learners: [("mds", make_code("mds", rows=min(learners, 15), units=4))],
        learners=15,
        stragglers=FixedK(k=2, delay_s=0.5),
        iterations=1,
    )
    waits = swept["stragglers"]["mds"]
    assert waits[0].round_s == 0.0
    assert all(waits[k].round_s == 0.5 for k in range(1, 8))
