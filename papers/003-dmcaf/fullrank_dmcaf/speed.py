"""Table III and Fig. 7: collection and updates of Qmix, AW and AWL.

Step and update take times that are fitted to the paper's AW on each map; the speed of AWL, whose
workers and learner never wait, is then a prediction in virtual time. One map is also run by real
services, whose steps and updates sleep, and which are to be as quick as predicted. The games are
those of SMAC-lite, and the networks are small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from fullrank.common.types import JSON, Array
from fullrank.training.evaluation import evaluate, random_actions
from fullrank.wiring.plugins import environment_of
from fullrank_papers import pictures
from fullrank_papers.cells import Cell, Later, Results
from fullrank_papers.claims import (
    CIRCULAR,
    NEAR,
    ClaimResult,
    Held,
    Whose,
    by_samples,
    judge,
    simulated,
    undecided,
)
from fullrank_papers.paper import table as table_of
from fullrank_papers.paper import toml
from fullrank_papers.runs import configured, observe
from fullrank_papers.smax import PREFIX, battle
from fullrank_papers.virtual import Evaluations, VirtualDurations, VirtualHistory
from fullrank_papers.virtual_learning import virtual_cell

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
    """Maps whose collection is predicted."""
    served: str = "3m"
    """The map that services play."""
    turns: int
    """Runs of each system by services, in turns."""
    iterations: int
    """Iterations of Qmix that are counted, in virtual time and by services."""
    trained: int
    """Iterations of the team whose hidden states are mixed."""
    episodes: int
    """Episodes that it plays."""
    waits: int
    """Steps of each actor that waits for others."""
    learnt: Mapping[str, int] = field(default_factory=dict)
    """Environment steps of the learning curves by map; none: Fig. 8 is not tested."""
    per_iteration: int = 200
    """Of these, those for which a curve has the virtual time of an iteration of Qmix."""
    points: int = 1
    """Evaluations of a learning curve, by steps as by time."""
    evaluated: int = 32
    """Episodes of an evaluation."""
    seeds: tuple[int, ...]
    """Seeds of the learning curves."""
    in_time: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Seeds by which alone a map's return over time is judged, where they are not ``seeds``."""
    beside_coma: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """Seeds by which a system is compared with COMA over steps, by map and system; elsewhere it is
    ``seeds``."""
    teams: tuple[int, ...] = (1, 2, 3)
    """Seeds of the teams whose hidden states are mixed."""


SCALES = {name: DmcafScale(**sizes) for name, sizes in toml(PACKAGE, "scales.toml").items()}

SYSTEMS: Final = ("episode", "aw", "awl")
NAMES: Final = {"episode": "Qmix", "aw": "AW", "awl": "AWL"}
COLOURS: Final = {"episode": "#9aa5b1", "aw": "#e69f00", "awl": "#0072b2"}
ITERATION_S: Final = 1.0
"""Virtual time of an iteration of Qmix."""
SERVED_S: Final = 6.0
"""Emulated time of an iteration of Qmix by services, of which a busy machine is capable."""
SETTLING: Final = 3
"""Iterations of services that are not counted."""
LEAST_ITERATIONS: Final = 8
"""Counted iterations without which a speed is not told from another one."""
FREE: Final = (
    *("collect.mode=free", "environment.copies=1", "collectors.count=4"),
    *("collect.window=1000000", "collect.warmup_episodes=32"),
)
"""Players that never wait for the learner, and a learner that waits for an episode at most."""
PLAYING: Final = {
    "episode": ("environment.copies=1", "collect.warmup=800", "collect.warmup_copies=1"),
    "aw": (*FREE, "collect.block=1"),
    "awl": (*FREE, f"collect.block={PER_WORKER}"),
}
"""The topologies in virtual time: actors of AW take turns with its updates, and each plays by
itself."""
HOST: Final = ("iterations=1000000", "compute.threads=1", "compute.device=cpu", "metrics.sinks=[]")
SERVED: Final = ("episode", "awl")
"""Systems that services run."""
LENGTH_EPISODES: Final = 256
SMALL: Final = (
    *("algorithm.name=qmix", "algorithm.batch_size=4", "algorithm.hidden=16"),
    *("algorithm.micro_batches=1", "environment.name=smac_lite"),
    *("collect.warmup=100", "collect.warmup_episodes=6"),
)
SERVICES: Final = (
    *("learners=1", "code.name=uncoded", "collect.warmup_copies=8"),
    *("audit.every=0", "checkpoint.every=1000000", "metrics.sinks=[]"),
)


def length_cell(name: str) -> Cell:
    """Mean length of an episode of random play, which turns its time into that of a step."""
    settings = {"map": name, "episodes": LENGTH_EPISODES}
    return Cell(name=length_name(name), settings=settings, compute=partial(_length, name))


def length_name(name: str) -> str:
    """The name of a cell."""
    return f"length-{name}"


def _length(name: str) -> JSON:
    environment = environment_of(configured(*battle(name)), copies=64)
    act = random_actions(environment.agents, seed=0)
    played = evaluate(environment, act, episodes=LENGTH_EPISODES, seed=0)
    return {"steps": float(played.lengths.mean())}


def durations_of(name: str, system: str, length: float) -> VirtualDurations:
    """The durations of a system, which the paper's AW tells.

    Args:
        name: The map.
        system: The system.
        length: Steps of an episode.
    """
    share = SCENARIOS[name.removeprefix(PREFIX)].playing_share
    return VirtualDurations(
        step_s=share * ITERATION_S / length,
        acting_s=0.0,
        wire_s=0.0,
        update_s=(1 - share) * ITERATION_S,
        holds=system == "aw",
    )


def cells(scale: DmcafScale) -> list[Cell | Later]:
    """Lengths of episodes, and the systems on each map, whose times follow from them."""
    return [
        *(length_cell(name) for name in dict.fromkeys([*scale.maps, *scale.learnt])),
        *(
            Later(
                name=f"predicted-{name}-{system}",
                needs=(length_name(name),),
                make=partial(_predicted_cell, name, system, scale.iterations),
            )
            for name in scale.maps
            for system in SYSTEMS
        ),
        *(
            Later(
                name=served_name(scale.served, system, turn),
                needs=(length_name(scale.served),),
                make=partial(_served_cell, scale.served, system, turn, scale.iterations),
                weight=SERVED_S * scale.iterations,
            )
            for turn in range(scale.turns)
            for system in SERVED
        ),
    ]


def _predicted_cell(name: str, system: str, iterations: int, results: Results) -> Cell:
    return virtual_cell(
        f"predicted-{name}-{system}",
        configured(*PLAYING[system], *SMALL, f"environment.map={name}", *HOST),
        durations_of(name, system, results[length_name(name)]["steps"]),
        # From the first evaluation on, players that began together have come apart.
        Evaluations(points=2, episodes=1, until_s=2 * iterations * ITERATION_S),
        told=_rates,
    )


def _rates(history: VirtualHistory) -> JSON:
    """Episodes and updates in the virtual time of an iteration of Qmix."""
    settled, ended = history.points
    counted_s = ended.time_s - settled.time_s
    return {
        "episodes_per_s": (ended.episodes - settled.episodes) / counted_s,
        "updates_per_s": (ended.iteration - settled.iteration) / counted_s,
    }


def served_name(name: str, system: str, turn: int) -> str:
    """The name of the cell of a run by services."""
    return f"served-{name}-{system}-{turn}"


def _served_cell(name: str, system: str, turn: int, iterations: int, results: Results) -> Cell:
    settings = served_settings(name, results[length_name(name)]["steps"], system, iterations)
    return Cell(
        name=served_name(name, system, turn),
        settings={"topology": system, "settings": list(settings)},
        compute=partial(_served, settings, system),
    )


def served_settings(name: str, length: float, system: str, iterations: int) -> list[str]:
    """Return the settings of a system by services; equal emulated time for every system."""
    share = SCENARIOS[name].playing_share
    updates = iterations if system == "episode" else round(iterations / (1 - share))
    return [
        *(PLAYING[system] if system == "awl" else ()),
        *SMALL,
        *SERVICES,
        f"environment.map={name}",
        f"compute.emulate_step_s={share * SERVED_S / length:.5f}",
        f"compute.emulate_unit_s={(1 - share) * SERVED_S:.4f}",
        f"iterations={SETTLING + updates}",
    ]


def _served(settings: Sequence[str], system: str) -> JSON:
    """Episodes and updates in the emulated time of an iteration of Qmix, and those counted."""
    seen = observe(configured(*settings, topology=system))[SETTLING - 1 :]
    (began_s, first), (ended_s, last) = seen[0], seen[-1]
    updates = len(seen) - 1
    played = [each.statistics.get("episodes") for each in (first, last)]
    episodes = updates if played[1] is None else played[1] - (played[0] or 0.0)
    per_s = SERVED_S / (ended_s - began_s)
    return {
        "episodes_per_s": episodes * per_s,
        "updates_per_s": updates * per_s,
        "iterations": updates,
    }


def predicted(results: Results, name: str, system: str) -> float:
    """Return the predicted episodes of a system in those of Qmix."""
    return predicted_rate(results, name, system) / predicted_rate(results, name, SYSTEMS[0])


def predicted_rate(results: Results, name: str, system: str) -> float:
    """Return the predicted episodes of a system in an iteration of Qmix."""
    return float(results[f"predicted-{name}-{system}"]["episodes_per_s"])


def judge_speed(results: Results, scale: DmcafScale) -> list[ClaimResult]:
    """Judge claims D2, D10 and D3."""
    ratios = {
        name: (predicted(results, name, "awl"), SCENARIOS[name].ratio("awl")) for name in scale.maps
    }
    texts = {
        name: f"{name} predicted {ours:.1f}, published {paper:.2f}"
        for name, (ours, paper) in ratios.items()
    }
    return [
        judge(
            f"D2: AWL collects 6.4 to 7.6 times as fast as Qmix (Table III), within {NEAR:.0%}.",
            [texts[name] for name, (ours, paper) in ratios.items() if not near(ours, paper)],
            grounds="; ".join(texts.values()),
            strength=simulated("that actors, workers and learner never wait for a core"),
        ),
        _judge_services(results, scale),
        judge(
            "D3: AWL updates the model most often, then AW, then Qmix (Fig. 7).",
            [],
            grounds="AW's updates are its episodes, from which its machine was solved; a learner "
            "that never waits makes more for any share of playing",
            strength=CIRCULAR,
        ),
    ]


def _judge_services(results: Results, scale: DmcafScale) -> ClaimResult:
    """Judge claim D10: services are as quick as virtual time.

    Turns of one occasion tell how steady it was, and nothing of others: they refute the claim where
    they lie outside the band, and do not decide it where they lie within.
    """
    claim = f"D10: services collect {scale.served} as fast as predicted, within {NEAR:.0%}."
    rates = {system: _served_rates(results, scale, system) for system in SERVED}
    least = min(
        results[served_name(scale.served, system, turn)]["iterations"]
        for system in SERVED
        for turn in range(scale.turns)
    )
    said, alone = served_said(results, scale), predicted_rate(results, scale.served, SYSTEMS[0])
    if least < LEAST_ITERATIONS or not all(near(each, alone) for each in rates["episode"]):
        reason = f"{said} The machine is too slow for the emulated times"
        return undecided(claim, reason, whose=Whose.OURS)
    told = by_samples(
        claim,
        {
            NAMES[system]: 100 * (each / predicted_rate(results, scale.served, system) - 1)
            for system, each in rates.items()
        },
        low=-100 * NEAR,
        high=100 * NEAR,
        unit="turns",
        whose=Whose.OURS,
        said=f"% more than predicted. {said}",
    )
    if told.held is Held.NOT_HELD:
        return told
    reason = f"turns of one occasion; {told.reason}"
    return undecided(claim, reason, told.strength, whose=Whose.OURS)


def _served_rates(results: Results, scale: DmcafScale, system: str) -> Array:
    """Episodes of a system in an iteration of Qmix by services, shape (turns,)."""
    names = (served_name(scale.served, system, turn) for turn in range(scale.turns))
    return np.array([results[name]["episodes_per_s"] for name in names], np.float64)


def served_said(results: Results, scale: DmcafScale) -> str:
    """Say what services collect beside what is predicted."""
    parts = [
        f"{NAMES[system]} {_served_rates(results, scale, system).mean():.2f}, "
        f"predicted {predicted_rate(results, scale.served, system):.2f}"
        for system in SERVED
    ]
    return f"Episodes in an iteration of Qmix: {'; '.join(parts)}."


def near(ours: float, other: float) -> bool:
    """True if a time or a throughput is within the band of the rules."""
    return abs(ours / other - 1) <= NEAR


def table(results: Results, maps: Sequence[str]) -> str:
    """Predicted ratios beside the paper's."""
    rows = []
    for name in maps:
        scenario = SCENARIOS[name]
        row = [name, f"{scenario.playing_share:.2f}"]
        for system in SYSTEMS[1:]:
            row += [f"{scenario.ratio(system):.2f}", f"{predicted(results, name, system):.2f}"]
        rates = [results[f"predicted-{name}-{system}"] for system in SYSTEMS]
        row += [f"{rate['updates_per_s']:.2f}" for rate in rates]
        rows.append([*row, f"{rates[-1]['episodes_per_s'] / rates[-1]['updates_per_s']:.1f}"])
    heads = ("map", "p", "AW, paper", "AW", "AWL, paper", "AWL")
    updates = [f"updates, {NAMES[system]}" for system in SYSTEMS]
    return table_of([*heads, *updates, "episodes an update, AWL"], rows)


def draw(results: Results, maps: Sequence[str], path: Path) -> None:
    """Draw collection beside the paper's, and updates a second."""
    titles, width = ("Collection; lines: the paper's Table III", "Updates"), 0.26
    with pictures.panels(path, titles, size=(5.2, 3.8)) as (left, right):
        for index, system in enumerate(SYSTEMS):
            at = np.arange(len(maps)) + (index - 1) * width
            style: dict[str, Any] = {"color": COLOURS[system], "label": NAMES[system]}
            rates = [results[f"predicted-{name}-{system}"]["updates_per_s"] for name in maps]
            right.bar(at, rates, 0.9 * width, **style)
            if system != "episode":
                ratios = [predicted(results, name, system) for name in maps]
                left.bar(at, ratios, 0.9 * width, **style)
                paper = [SCENARIOS[name].ratio(system) for name in maps]
                left.hlines(paper, at - width / 2, at + width / 2, color="black", linewidth=1.6)
        left.set_ylabel("episodes collected, Qmix = 1")
        right.set_ylabel("updates in an iteration of Qmix")
        right.set_ylim(top=1.35 * right.get_ylim()[1])  # leaves room for the legend
        for axes in (left, right):
            axes.set_xticks(range(len(maps)), maps)
            axes.legend(frameon=False)
