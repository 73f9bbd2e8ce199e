"""Table III and Fig. 7: collection and updates of Qmix, AW and AWL on real services.

Step and update take emulated times, which are fitted to the paper's AW on each map; the speed of
AWL is then a prediction. The games are those of SMAC-lite, and the networks are small.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from fullrank.common.types import JSON
from fullrank.config.layers import load
from fullrank.config.tree import RunConfig
from fullrank.environments import make_environment
from fullrank.training.evaluation import evaluate, random_actions
from fullrank_reproduction import pictures
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.claim_results import ClaimResult, Held, Strength, judge
from fullrank_reproduction.dmcaf.published import ACTORS, SCENARIOS, Scenario

Watch: TypeAlias = Callable[[RunConfig], Sequence[float]]
"""Trains on real services; returns when each iteration was seen to be committed, in seconds."""

SYSTEMS: Final = ("episode", "aw", "awl")
NAMES: Final = {"episode": "Qmix", "aw": "AW", "awl": "AWL"}
COLOURS: Final = {"episode": "#9aa5b1", "aw": "#e69f00", "awl": "#0072b2"}
ITERATION_S: Final = 1.0
"""Emulated time of an iteration of Qmix."""
SETTLING: Final = 3
"""Iterations that are not counted."""
PER_UPDATE: Final = {"episode": 1, "aw": ACTORS, "awl": 6}
"""Episodes of an iteration. Of AWL the paper states no number: at 6 its learner is nearly always
busy."""
UPDATES: Final = {"episode": 1, "aw": ACTORS, "awl": 1}
"""Updates of an iteration: AW learns from each of its episodes, emulated by one long update."""
LEAST_ITERATIONS: Final = 8
"""Counted iterations without which a speed is not told from another one."""
LENGTH_EPISODES: Final = 256
SMALL: Final = (
    "algorithm.name=qmix",
    "algorithm.batch_size=4",
    "algorithm.hidden=16",
    "algorithm.micro_batches=1",
    "environment.name=smac_lite",
    "learners=1",
    "code.name=uncoded",
    "collect.warmup=100",
    "collect.warmup_copies=8",
    "collect.warmup_episodes=6",
    "collect.window=12",
    "audit.every=0",
    "checkpoint.every=1000000",
    "metrics.sinks=[]",
)


def length_cell(name: str) -> Cell:
    """Mean length of an episode of random play, which turns its time into that of a step."""
    settings = {"map": name, "episodes": LENGTH_EPISODES}
    return Cell(name=f"length-{name}", settings=settings, compute=partial(_length, name))


def _length(name: str) -> JSON:
    environment = make_environment("smac_lite", copies=64, map=name)
    act = random_actions(environment.agents, seed=0)
    played = evaluate(environment, act, episodes=LENGTH_EPISODES, seed=0)
    return {"steps": float(played.lengths.mean())}


def cells(name: str, length: float, *, iterations: int, watch: Watch) -> list[Cell]:
    """Cells of the three systems on one map.

    Args:
        name: The map.
        length: Mean length of its episodes.
        iterations: Counted iterations of Qmix.
        watch: Trains on real services.
    """
    made = []
    for system in SYSTEMS:
        settings = _settings(name, length, system, iterations=iterations)
        made.append(
            Cell(
                name=f"speed-{name}-{system}",
                settings={"topology": system, "settings": list(settings)},
                compute=partial(_measured, settings, system, watch),
                weight=20.0,
            )
        )
    return made


def _settings(name: str, length: float, system: str, *, iterations: int) -> list[str]:
    """Return the settings of a system on a map; equal emulated time for every system."""
    share = SCENARIOS[name].playing_share
    play_s, learn_s = share * ITERATION_S, UPDATES[system] * (1 - share) * ITERATION_S
    iteration_s = play_s + learn_s if system != "awl" else learn_s
    counted = max(LEAST_ITERATIONS, round(iterations * ITERATION_S / iteration_s))
    return [
        *SMALL,
        f"environment.map={name}",
        f"environment.copies={PER_UPDATE[system]}",
        f"compute.emulate_step_s={play_s / length:.5f}",
        f"compute.emulate_unit_s={learn_s:.4f}",
        f"iterations={SETTLING + counted}",
    ]


def _measured(settings: Sequence[str], system: str, watch: Watch) -> JSON:
    """Episodes and updates a second, and the counted iterations."""
    config = load(environ={}, overrides=settings, topology=system).check().config
    times = watch(config)
    counted = len(times) - SETTLING
    rate = counted / (times[-1] - times[SETTLING - 1])
    return {
        "episodes_per_s": rate * PER_UPDATE[system],
        "updates_per_s": rate * UPDATES[system],
        "iterations": counted,
    }


def _ratio(results: Mapping[str, JSON], name: str, system: str) -> float:
    """Episodes of a system in those of Qmix, at its emulated pace where the machine was slower."""
    rates = [
        results[f"speed-{name}-{compared}"]["episodes_per_s"] for compared in (system, "episode")
    ]
    return float(rates[0] / max(rates[1], 1 / ITERATION_S))


def qmix_iteration_s(results: Mapping[str, JSON], maps: Sequence[str]) -> tuple[float, float]:
    """Return the shortest and the longest measured iteration of Qmix, seconds."""
    times = [1 / results[f"speed-{name}-episode"]["updates_per_s"] for name in maps]
    return min(times), max(times)


def _strength(results: Mapping[str, JSON], maps: Sequence[str]) -> Strength:
    least = min(
        results[f"speed-{name}-{system}"]["iterations"] for name in maps for system in SYSTEMS
    )
    enough = Held.HELD if least >= LEAST_ITERATIONS else Held.UNDECIDED
    return Strength(f"measured with emulated times, {least} iterations or more", enough)


def judge_speed(results: Mapping[str, JSON], maps: Sequence[str]) -> list[ClaimResult]:
    """Judge claims D2 and D3."""
    strength = _strength(results, maps)
    awl = {name: _ratio(results, name, "awl") for name in maps}
    said = ", ".join(
        f"{name} {value:.1f} beside {SCENARIOS[name].awl_ratio:.2f}" for name, value in awl.items()
    )
    slow = [
        f"{name}: {value:.2f} beside {SCENARIOS[name].awl_ratio:.2f}"
        for name, value in awl.items()
        if value < SCENARIOS[name].awl_ratio
    ]
    updates = {
        name: [results[f"speed-{name}-{system}"]["updates_per_s"] for system in SYSTEMS]
        for name in maps
    }
    wrong = [
        f"{name}: {', '.join(f'{value:.2f}' for value in values)} updates/s"
        for name, values in updates.items()
        if not values[0] <= values[1] < values[2]
    ]
    shown = "; ".join(
        f"{name} {' < '.join(f'{value:.2f}' for value in values)}"
        for name, values in updates.items()
    )
    return [
        judge(
            "D2: AWL collects 6.4 to 7.6 times as fast as Qmix (Table III).",
            slow,
            grounds=f"{said}, times the speed of Qmix; at least the paper's is asked",
            strength=strength,
        ),
        judge(
            "D3: AWL updates the model most often, then AW, then Qmix (Fig. 7).",
            wrong,
            grounds=f"updates/s of Qmix, AW, AWL: {shown}",
            strength=strength,
        ),
    ]


def table(results: Mapping[str, JSON], maps: Sequence[str]) -> str:
    """Ratios beside the paper's as a Markdown table."""
    lines = [
        "| map | p | AW, paper | AW | AWL, paper | AWL | AWL without any wait |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in maps:
        scenario = SCENARIOS[name]
        aw, awl = (_ratio(results, name, system) for system in ("aw", "awl"))
        lines.append(
            f"| {name} | {scenario.playing_share:.2f} | {scenario.aw_ratio:.2f} | {aw:.2f} | "
            f"{scenario.awl_ratio:.2f} | {awl:.2f} | {unhindered(scenario):.1f} |"
        )
    return "\n".join(lines)


def unhindered(scenario: Scenario) -> float:
    """Return the speed of AWL in that of Qmix if only learning or only playing took time."""
    share = scenario.playing_share
    return min(12 / share, PER_UPDATE["awl"] / (1 - share))


def draw(results: Mapping[str, JSON], maps: Sequence[str], path: Path) -> None:
    """Draw collection beside the paper's, and updates a second."""
    figure = pictures.blank(width=10.5, height=3.8)
    left, right = figure.subplots(1, 2)
    places, width = np.arange(len(maps)), 0.26
    for index, system in enumerate(("aw", "awl")):
        ratios = [_ratio(results, name, system) for name in maps]
        at = places + (index - 0.5) * width
        style: dict[str, Any] = {"color": COLOURS[system], "label": NAMES[system]}
        left.bar(at, ratios, 0.9 * width, **style)
        attribute = f"{system}_ratio"
        paper = [getattr(SCENARIOS[name], attribute) for name in maps]
        left.hlines(paper, at - width / 2, at + width / 2, color="black", linewidth=1.6)
    left.set_ylabel("episodes collected, Qmix = 1")
    left.set_title("Collection; lines: the paper's Table III", fontsize=10)
    for index, system in enumerate(SYSTEMS):
        rates = [results[f"speed-{name}-{system}"]["updates_per_s"] for name in maps]
        at = places + (index - 1) * width
        right.bar(at, rates, 0.9 * width, color=COLOURS[system], label=NAMES[system])
    right.set_ylabel("updates a second")
    right.set_title("Updates", fontsize=10)
    right.set_ylim(top=1.35 * right.get_ylim()[1])  # leaves room for the legend
    for axes in (left, right):
        axes.set_xticks(places, maps)
        axes.legend(frameon=False)
        pictures.tidy(axes)
    figure.savefig(path, dpi=pictures.DPI)
