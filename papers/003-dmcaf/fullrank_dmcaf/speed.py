"""Table III and Fig. 7: collection and updates of Qmix, AW and AWL on real services.

Step and update take emulated times, which are fitted to the paper's AW on each map; the speed of
AWL is then a prediction. The games are those of SMAC-lite, and the networks are small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from fullrank.common.types import JSON
from fullrank.environments import make_environment
from fullrank.training.evaluation import evaluate, random_actions
from fullrank_papers import pictures
from fullrank_papers.cells import Cell, Later, Results
from fullrank_papers.claims import CIRCULAR, NEAR, ClaimResult, Strength, judge, some, undecided
from fullrank_papers.paper import table as table_of
from fullrank_papers.paper import toml
from fullrank_papers.runs import configured, observe

PACKAGE: Final = "fullrank_dmcaf"
ACTORS: Final = 4
"""Actors of AW, which share one worker."""
PER_WORKER: Final = 3
"""Actors of each of AWL's four workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario of Tables I and III."""

    actions: int
    agents: int
    state: int
    """Entries of the state."""
    observation: int
    """Entries of an agent's observation."""
    speeds: tuple[float, float, float]
    """Collection speed of Qmix, AW-Qmix and AWL-Qmix, in a unit that the paper does not name."""

    def ratio(self, system: str) -> float:
        """Return the speed of AW or AWL in that of Qmix."""
        return self.speeds[1 if system == "aw" else 2] / self.speeds[0]

    @property
    def playing_share(self) -> float:
        """Return the share of an iteration of Qmix that is playing, p.

        Qmix plays an episode, then learns. AW plays ``ACTORS`` at once and learns from each, in
        p + ``ACTORS`` (1 - p) of that time, which its ratio gives.
        """
        return (ACTORS - ACTORS / self.ratio("aw")) / (ACTORS - 1)


SCENARIOS: Final = MappingProxyType(
    {name: Scenario(**entry) for name, entry in toml(PACKAGE, "published.toml").items()}
)
"""Tables I and III by scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DmcafScale:
    """Sizes of the reproduction."""

    maps: tuple[str, ...] = tuple(SCENARIOS)
    """Maps whose collection is measured."""
    iterations: int
    """Counted iterations of Qmix, a second each."""
    trained: int
    """Iterations of the team whose hidden states are mixed."""
    episodes: int
    """Episodes that it plays."""
    waits: int
    """Steps of each actor that waits for others."""
    learnt: tuple[str, ...] = ()
    """Maps of the learning curves; none: Fig. 8 is not tested."""
    steps: int = 0
    """Environment steps of a learning curve."""
    seeds: tuple[int, ...]
    """Seeds of what is learnt."""


SCALES = {name: DmcafScale(**sizes) for name, sizes in toml(PACKAGE, "scales.toml").items()}

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


def cells(scale: DmcafScale) -> list[Cell | Later]:
    """Lengths of episodes, and the three systems on each map, whose times follow from them."""
    return [
        *map(length_cell, scale.maps),
        *(
            Later(
                name=f"speed-{name}-{system}",
                needs=(f"length-{name}",),
                make=partial(_speed_cell, name, system, scale.iterations),
                weight=20.0,
            )
            for name in scale.maps
            for system in SYSTEMS
        ),
    ]


def _speed_cell(name: str, system: str, iterations: int, results: Results) -> Cell:
    length = results[f"length-{name}"]["steps"]
    settings = _settings(name, length, system, iterations=iterations)
    return Cell(
        name=f"speed-{name}-{system}",
        settings={"topology": system, "settings": list(settings)},
        compute=partial(_measured, settings, system),
    )


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


def _measured(settings: Sequence[str], system: str) -> JSON:
    """Episodes and updates a second, and the counted iterations."""
    times = [seen_s for seen_s, _ in observe(configured(*settings, topology=system))]
    counted = len(times) - SETTLING
    rate = counted / (times[-1] - times[SETTLING - 1])
    return {
        "episodes_per_s": rate * PER_UPDATE[system],
        "updates_per_s": rate * UPDATES[system],
        "iterations": counted,
    }


def _ratio(results: Results, name: str, system: str) -> float:
    """Episodes of a system in those of Qmix, at its emulated pace where the machine was slower."""
    rates = [
        results[f"speed-{name}-{compared}"]["episodes_per_s"] for compared in (system, "episode")
    ]
    return float(rates[0] / max(rates[1], 1 / ITERATION_S))


def qmix_iteration_s(results: Results, maps: Sequence[str]) -> tuple[float, float]:
    """Return the shortest and the longest measured iteration of Qmix, seconds."""
    times = [1 / results[f"speed-{name}-episode"]["updates_per_s"] for name in maps]
    return min(times), max(times)


def judge_speed(results: Results, maps: Sequence[str]) -> list[ClaimResult]:
    """Judge claims D2 and D3."""
    least = min(
        results[f"speed-{name}-{system}"]["iterations"] for name in maps for system in SYSTEMS
    )
    _, slowest_s = qmix_iteration_s(results, maps)
    awl = {name: (_ratio(results, name, "awl"), SCENARIOS[name].ratio("awl")) for name in maps}
    texts = {
        name: f"{name} {ours:.1f}, published {paper:.2f}" for name, (ours, paper) in awl.items()
    }
    claim = f"D2: AWL collects 6.4 to 7.6 times as fast as Qmix (Table III), within {NEAR:.0%}."
    strength = Strength(f"measured with emulated times, {least} iterations or more")
    if least < LEAST_ITERATIONS or slowest_s > (1 + NEAR) * ITERATION_S:
        reason = f"{some([*texts.values()])}; the machine is too slow for the emulated times"
        collected = undecided(claim, reason, strength)
    else:
        far = [texts[name] for name, (ours, paper) in awl.items() if abs(ours / paper - 1) > NEAR]
        collected = judge(claim, far, grounds="; ".join(texts.values()), strength=strength)
    return [
        collected,
        judge(
            "D3: AWL updates the model most often, then AW, then Qmix (Fig. 7).",
            [],
            grounds="AW's updates are its episodes, from which its machine was solved; AWL's are a "
            "number of ours for each of its episodes",
            strength=CIRCULAR,
        ),
    ]


def table(results: Results, maps: Sequence[str]) -> str:
    """Ratios beside the paper's."""
    rows = []
    for name in maps:
        row = [name, f"{SCENARIOS[name].playing_share:.2f}"]
        for system in ("aw", "awl"):
            row.append(f"{SCENARIOS[name].ratio(system):.2f}")
            row.append(f"{_ratio(results, name, system):.2f}")
        rows.append([*row, f"{unhindered(SCENARIOS[name]):.1f}"])
    heads = ("map", "p", "AW, paper", "AW", "AWL, paper", "AWL", "AWL without any wait")
    return table_of(heads, rows)


def unhindered(scenario: Scenario) -> float:
    """Return the speed of AWL in that of Qmix if only learning or only playing took time."""
    share = scenario.playing_share
    return min(4 * PER_WORKER / share, PER_UPDATE["awl"] / (1 - share))


def draw(results: Results, maps: Sequence[str], path: Path) -> None:
    """Draw collection beside the paper's, and updates a second."""
    titles, width = ("Collection; lines: the paper's Table III", "Updates"), 0.26
    with pictures.panels(path, titles, size=(5.2, 3.8)) as (left, right):
        for index, system in enumerate(SYSTEMS):
            at = np.arange(len(maps)) + (index - 1) * width
            style: dict[str, Any] = {"color": COLOURS[system], "label": NAMES[system]}
            rates = [results[f"speed-{name}-{system}"]["updates_per_s"] for name in maps]
            right.bar(at, rates, 0.9 * width, **style)
            if system != "episode":
                ratios = [_ratio(results, name, system) for name in maps]
                left.bar(at, ratios, 0.9 * width, **style)
                paper = [SCENARIOS[name].ratio(system) for name in maps]
                left.hlines(paper, at - width / 2, at + width / 2, color="black", linewidth=1.6)
        left.set_ylabel("episodes collected, Qmix = 1")
        right.set_ylabel("updates a second")
        right.set_ylim(top=1.35 * right.get_ylim()[1])  # leaves room for the legend
        for axes in (left, right):
            axes.set_xticks(range(len(maps)), maps)
            axes.legend(frameon=False)
