"""Figs. 4 and 8: what hidden states are worth, and learning of Qmix, AW and AWL.

For Fig. 4 each seed's trained team plays the same episodes twice: every copy with its own hidden
state, and every copy with that of the copy beside it, as a worker would serve it that has one state
for all actors.

For Fig. 8 all systems learn in virtual time, with the durations of Table III. AW is one process
that acts for 4 actors and updates after each of their episodes, while they stand still; AWL is 4
workers of 3 actors, which never wait, and a learner that updates again and again. Every run plays
the same number of environment steps, and goes on to a fixed virtual time if that is later. The
greedy policy is evaluated at equal distances of either.

The measures were fixed before these cells. The **return over steps**, the mean of a run's
evaluations by steps, decides D4 and D5 as in the paper, whose abscissa is steps. The **return over
time**, the mean of those by time, decides D9, which is ours. It is a share of that of a victory
without losses, as in Fig. 8 (a) and (e). Win rates, (b) and (f), stand beside it and decide
nothing, because runs that are affordable here do not win 2s3z. Who learns sooner is undecided where
no team that is compared earns more than it did untrained. Learning rates and networks are those of
PyMARL2, the games those of SMAC-lite; claims on SMAX, a battle of another project, are ours.

Differences from the paper:

- Hidden states are mixed when trained teams play (Fig. 4); the paper mixes while it learns.
- An episode is played by the policy with which it began (Fig. 8), also where an update falls into
  it; the three actors of a worker of AWL begin together, and wait for the longest episode.
- Systems warm up unequally (Fig. 8): Qmix plays 800 steps alone before its first update, AW and AWL
  32 episodes with all their actors, so that they begin later by steps and sooner by time.
- AWL collects up to three times as fast as the paper's beside its updates (D2): it has fewer of
  them for as many steps (D4).
- COMA plays 8 episodes at once and updates twice, with the library's settings and the rate of all.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from fullrank.common.types import JSON, Array, BoolArray, FloatArray
from fullrank.config.tree import RunConfig
from fullrank.local import LocalRun
from fullrank.training.evaluation import Act, Greedy, evaluate_and_close, random_actions
from fullrank.wiring.plugins import environment_of
from fullrank_dmcaf.speed import (
    COLOURS,
    HOST,
    ITERATION_S,
    NAMES,
    PLAYING,
    SYSTEMS,
    DmcafScale,
    durations_of,
    length_name,
)
from fullrank_papers import pictures
from fullrank_papers.cells import Cell, Later, Results
from fullrank_papers.claims import (
    ClaimResult,
    Whose,
    by_samples,
    interval,
    undecided,
)
from fullrank_papers.paper import table
from fullrank_papers.runs import configured
from fullrank_papers.smax import PREFIX, battle
from fullrank_papers.virtual import CHANNELS, Evaluations
from fullrank_papers.virtual_learning import virtual_cell

MEMORY: Final = "memory"
COPIES: Final = 16
EVALUATION_SEED: Final = 1000
OWN, MIXED, RANDOM = "own", "mixed", "random"
LABELS: Final = {OWN: "own hidden states", MIXED: "mixed hidden states", RANDOM: "random play"}
SETTINGS: Final = (
    "environment.name=smac_lite",
    "environment.map=3m",
    "algorithm.name=qmix",
    "algorithm.optimiser=adam",
    "algorithm.learning_rate=0.001",
    "algorithm.trace=0.6",
    "algorithm.exploration_steps=20000",
)


class _OneState(Greedy):
    """Hands the hidden state of every copy on to the next one."""

    def __call__(
        self, observation: FloatArray, available: BoolArray | None = None, /
    ) -> FloatArray:
        """Return greedy joint actions."""
        action = super().__call__(observation, available)
        state, *others = self._memory
        self._memory = (np.roll(state, 1, axis=0), *others)
        return action


def memory_cells(scale: DmcafScale) -> list[Cell]:
    """Returns of the same episodes with own and mixed hidden states, and of random play."""
    return [
        Cell(
            name=f"{MEMORY}-{seed}",
            settings={
                "settings": [*SETTINGS, f"seed={seed}"],
                "iterations": scale.trained,
                "episodes": scale.episodes,
            },
            compute=partial(_played, scale.trained, scale.episodes, seed),
            weight=0.1 * scale.trained,
            beside=True,
        )
        for seed in scale.teams
    ]


def _played(iterations: int, episodes: int, seed: int) -> JSON:
    config = configured(*SETTINGS, f"seed={seed}", f"iterations={iterations}")
    run = LocalRun(config, coded=False)
    run.train()
    actor = run.training.algorithm.actor

    def play(act: Act) -> list[float]:
        environment = environment_of(config, copies=COPIES)
        played = evaluate_and_close(environment, act, episodes, EVALUATION_SEED)
        return [float(value) for value in played.returns]

    agents = run.training.collector.agents
    return {
        OWN: play(Greedy(actor)),
        MIXED: play(_OneState(actor)),
        RANDOM: play(random_actions(agents, seed=0)),
    }


def memory(results: Results, scale: DmcafScale) -> dict[str, Array]:
    """Returns by play, shape (seeds, episodes)."""
    found = [results[f"{MEMORY}-{seed}"] for seed in scale.teams]
    return {play: np.array([each[play] for each in found]) for play in LABELS}


def judge_memory(played: Mapping[str, Array]) -> ClaimResult:
    """Judge claim D7 by the share of what a team has learnt that it loses, seed by seed."""
    own, mixed, random = (played[play].mean(axis=1) for play in (OWN, MIXED, RANDOM))
    return by_samples(
        "D7: hidden states must be kept by environment: a team whose states mix loses (Fig. 4).",
        {"": 100 * (own - mixed) / (own - random).mean()},
        said="% of what the teams have learnt",
    )


def draw_memory(played: Mapping[str, Array], path: Path) -> None:
    """Draw the distributions of returns of all seeds."""
    bins = np.linspace(0.0, max(float(values.max()) for values in played.values()), 25).tolist()
    colours = ("#0072b2", "#e69f00", "#9aa5b1")
    with pictures.panels(path, [""], size=(6.0, 3.4)) as (axes,):
        for (name, label), colour in zip(LABELS.items(), colours, strict=True):
            axes.hist(played[name].ravel(), bins=bins, histtype="step", color=colour, label=label)
        axes.set(xlabel="return of an episode of 3m", ylabel="episodes")
        axes.legend(frameon=False)


COMA: Final = "coma"
LEARNERS: Final = (*SYSTEMS, COMA)
LOOKS: Final = {
    **{system: (NAMES[system], COLOURS[system]) for system in SYSTEMS},
    COMA: ("COMA", "#cc79a7"),
}
"""Labels and colours."""
LEARNING: Final = {
    **{system: (*SETTINGS, *playing) for system, playing in PLAYING.items()},
    COMA: (
        *("environment.name=smac_lite", "algorithm.name=coma", "algorithm.learning_rate=0.001"),
        "environment.copies=8",
    ),
}
"""Settings of the learning curves."""
D4: Final = "D4: with equal interactions AW and AWL learn {} sooner than Qmix (Fig. 8)."
D5: Final = "D5: COMA is poor {} (Fig. 8): all three are ahead of it."
FIGURE, EVERYWHERE = "Fig. 8", "everywhere"
SHARE: Final = 5.0
"""Per cent of the largest return, 20, in a unit of returns."""
D9: Final = "D9: in equal time AW learns {} sooner than Qmix, AWL than AW."
DURATIONS = "durations solved from the paper's ratios"
STEPS, TIME = "by_steps", "points"
"""Evaluations at equal distances of environment steps, and of virtual time."""


def course_config(name: str, system: str, seed: int) -> RunConfig:
    """The run of a system on a map."""
    return configured(*LEARNING[system], *battle(name), f"seed={seed}", *HOST)


def cells(scale: DmcafScale) -> list[Later]:
    """Learning curves on each map, seed by seed; some go on for the time that is judged alone."""
    whole = [
        (name, system, seed, scale.learnt[name])
        for seed in scale.seeds
        for name in scale.learnt
        for system in LEARNERS
    ]
    timed = [
        (name, system, seed, 0)
        for name in scale.learnt
        for seed in _in_time(scale, name)
        for system in SYSTEMS
        if seed not in scale.seeds
    ]
    poor = [
        (name, system, seed, scale.learnt[name])
        for name, more in scale.beside_coma.items()
        for each, seeds in more.items()
        for seed in seeds
        for system in (each, COMA)
    ]
    return [
        Later(
            name=_name(name, system, seed),
            needs=(length_name(name),),
            make=partial(
                course_cell, name, system, seed, evaluations(scale, name, system, seed, steps)
            ),
            weight=(steps or scale.learnt[name] / 5) / 100,
        )
        for name, system, seed, steps in (*whole, *timed, *dict.fromkeys(poor))
    ]


def _in_time(scale: DmcafScale, name: str) -> tuple[int, ...]:
    """Seeds by which a map's return over time is judged."""
    return scale.in_time.get(name, scale.seeds)


def _name(name: str, system: str, seed: int) -> str:
    return f"learning-{name}-{system}-{seed}"


def course_cell(name: str, system: str, seed: int, asked: Evaluations, results: Results) -> Cell:
    """The course of a system."""
    return virtual_cell(
        _name(name, system, seed),
        course_config(name, system, seed),
        durations_of(name, system, results[length_name(name)]["steps"]),
        asked,
    )


def evaluations(scale: DmcafScale, name: str, system: str, seed: int, steps: int) -> Evaluations:
    """Evaluations of a system, whose time counts where the paper tells its durations."""
    timed = system != COMA and seed in (*scale.seeds, *_in_time(scale, name))
    until_s = scale.learnt[name] / scale.per_iteration * ITERATION_S
    return Evaluations(
        points=scale.points,
        episodes=scale.evaluated,
        until_steps=steps,
        until_s=until_s if timed else 0.0,
    )


def channel(
    results: Results,
    scale: DmcafScale,
    name: str,
    system: str,
    series: str,
    *,
    of: str = "return_mean",
    seeds: Sequence[int] = (),
) -> Array:
    """A channel of the evaluations, shape (seeds, points), by default of all seeds of a series."""
    place, own = CHANNELS.index(of), scale.seeds if series == STEPS else _in_time(scale, name)
    seeds = seeds or own
    every = [results[_name(name, system, seed)][series] for seed in seeds]
    return np.array([[point[place] for point in points] for points in every], np.float64)


def judge_learning(results: Results, scale: DmcafScale) -> dict[str, list[ClaimResult]]:
    """Judge D4 and D5 by the return over steps, and D9 by that over time; SMAX apart."""
    if not scale.learnt:
        reason = "needs learning curves, which `--scale standard` has"
        claims = D4.format("3m"), D5.format(EVERYWHERE)
        return {FIGURE: [undecided(each, reason) for each in claims]}
    own = [name for name in scale.learnt if name.startswith(PREFIX)]
    papers = [name for name in scale.learnt if name not in own]
    told = {FIGURE: _judged(results, scale, papers, EVERYWHERE, Whose.PAPER)}
    return told | ({"SMAX": _judged(results, scale, own, "on SMAX", Whose.OURS)} if own else {})


def _judged(
    results: Results, scale: DmcafScale, maps: Sequence[str], where: str, whose: Whose
) -> list[ClaimResult]:
    """Judge D4, D5 and D9 on some maps."""
    first, *others = SYSTEMS
    said = "% of the largest return, over "
    sooner, in_time, ahead = list[ClaimResult](), list[ClaimResult](), dict[str, Array]()
    for name in maps:
        areas = {system: _area(results, scale, name, system, STEPS) for system in SYSTEMS}
        times = {system: _area(results, scale, name, system, TIME) for system in SYSTEMS}
        ahead |= {f"{name} {NAMES[each]}": _lead(results, scale, name, each) for each in SYSTEMS}
        claim = by_samples(
            D4.format(name),
            {f"{NAMES[each]} - Qmix": areas[each] - areas[first] for each in others},
            said=f"{said}steps",
            whose=whose,
            assuming=DURATIONS,
        )
        before = untrained(results, scale.seeds, name)
        sooner.append(_of_learners(claim, [areas[each] - before for each in SYSTEMS]))
        claim = by_samples(
            D9.format(name),
            {
                f"{NAMES[latter]} - {NAMES[former]}": times[latter] - times[former]
                for former, latter in pairwise(SYSTEMS)
            },
            said=f"{said}time",
            whose=Whose.OURS,
            assuming=f"{DURATIONS}, and warm-ups of each system's own",
        )
        before = untrained(results, _in_time(scale, name), name)
        in_time.append(_of_learners(claim, [times[each] - before for each in SYSTEMS]))
    poor = by_samples(
        D5.format(where), ahead, said=f"{said}steps, above COMA's", whose=whose, assuming=DURATIONS
    )
    return [*sooner, poor, *in_time]


def _area(
    results: Results,
    scale: DmcafScale,
    name: str,
    system: str,
    series: str,
    *,
    seeds: Sequence[int] = (),
) -> Array:
    """Mean returns of the runs that judge a series, % of the largest."""
    area: Array = SHARE * channel(results, scale, name, system, series, seeds=seeds).mean(axis=1)
    return area


def _lead(results: Results, scale: DmcafScale, name: str, system: str) -> Array:
    """Mean returns over steps above COMA's, % of the largest."""
    seeds = scale.beside_coma.get(name, {}).get(system, scale.seeds)
    own, coma = (_area(results, scale, name, each, STEPS, seeds=seeds) for each in (system, COMA))
    return own - coma


def untrained(results: Results, seeds: Sequence[int], name: str) -> Array:
    """Returns of the teams before their first update, as Qmix's begins, % of the largest."""
    place = CHANNELS.index("return_mean")
    begun = [results[_name(name, SYSTEMS[0], seed)][TIME][0][place] for seed in seeds]
    return SHARE * np.array(begun, np.float64)


def _of_learners(result: ClaimResult, gains: Sequence[Array]) -> ClaimResult:
    """A result that is undecided if no team that it compares has gained anything."""
    if any(interval(each).low > 0 for each in gains):
        return result
    reason = f"no team learns; {result.reason}"
    return undecided(result.claim, reason, result.strength, whose=result.whose)


def learning_table(results: Results, scale: DmcafScale) -> str:
    """Returns and win rates over steps and time, episodes and updates, means over the seeds."""
    rows = []
    for name in scale.learnt:
        for system in LEARNERS:
            row: list[object] = [name, LOOKS[system][0]]
            for series in (STEPS, TIME):
                if series == TIME and system == COMA:
                    row += ["-"] * 4
                    continue
                tell = partial(channel, results, scale, name, system, series)
                row += [f"{SHARE * tell().mean():.1f}", f"{tell(of='win_rate').mean():.2f}"]
                row += [f"{tell(of=of)[:, -1].mean():.0f}" for of in ("episodes", "iteration")]
            rows.append(row)
    one = ("return, %", "won", "episodes", "updates")
    return table(["map", "system", *one, *(f"{head}, in time" for head in one)], rows)


def draw_learning(results: Results, scale: DmcafScale, path: Path) -> None:
    """Draw the returns by steps and by time, a line for each seed and one for their mean."""
    panels = [(name, series) for name in scale.learnt for series in (STEPS, TIME)]
    with pictures.panels(path, [name for name, _ in panels], columns=2) as every:
        for axes, (name, series) in zip(every, panels, strict=True):
            along, label = ("env_steps", "environment steps")
            if series == TIME:
                along, label = "time_s", "virtual time, iterations of Qmix"
            for system, (said, colour) in LOOKS.items():
                if series == TIME and system == COMA:
                    continue
                tell = partial(channel, results, scale, name, system, series)
                earned, at = SHARE * tell(), tell(of=along).mean(axis=0)
                axes.plot(at, earned.T, color=colour, linewidth=0.6, alpha=0.5)
                axes.plot(at, earned.mean(axis=0), color=colour, label=said)
            axes.set(xlabel=label, ylabel="return, % of the largest", ylim=(-3, 103))
            axes.legend(frameon=False)
