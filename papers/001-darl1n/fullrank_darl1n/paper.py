"""Paper 001: its parts, claims, tables and pictures.

Differences from the paper:

- DARL1N has the paper's replay, with 100 new samples of each agent in an iteration, as MADDPG and
  MFAC, in Tables I to IV; elsewhere, and as *darl1n, ours*, `batch` new ones and no replay.
- Runs are shorter, but for Ising with 9 agents; tables say by how much.
- Seconds are a processor's, without the network.
- Adversaries are frozen runs of our own.
- `mds` is the best of some orthonormal frames, not a Vandermonde matrix of unknown nodes;
  `random_sparse` is drawn again until no row is empty.
- Times of codes are virtual, on machines solved from three cells of Table VI.
- DARL1N learns from 2,000 episodes' transitions in Fig. 5, SAC from 30,000 episodes.
- EPC (`--scale paper`) is not run.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fullrank.common.types import JSON
from fullrank_darl1n import (
    code_page,
    coding,
    crossplay,
    distances,
    learning_claims,
    lemma_1,
    scaling,
    table_claims,
    time_claims,
    times,
    wireless,
)
from fullrank_darl1n.population import populations
from fullrank_darl1n.published import (
    BATTLE,
    DARL1N,
    ENGINE_METHODS,
    EPC,
    FOOD,
    GRASSLAND,
    ISING,
    METHODS,
    PACKAGE,
    SCALES,
    SCHEMES,
    TASKS,
    TIMED,
    Darl1nScale,
    Darl1nTask,
    StragglerModel,
    TeamSpec,
)
from fullrank_darl1n.runs import (
    OURS,
    LearningCurve,
    adversaries,
    curves,
    fixed_return,
    learners,
    seeds,
    trained,
)
from fullrank_darl1n.scaling import APART, growth, medians
from fullrank_darl1n.trials import Trial
from fullrank_papers import pictures
from fullrank_papers.cells import Results
from fullrank_papers.claims import ClaimResult, Judgement, untested
from fullrank_papers.paper import Findings, Paper, Planned, table

Darl1nFindings: TypeAlias = Findings[Darl1nScale]
COLOURS = {"maddpg": "#0072b2", "mfac": "#e69f00", "darl1n": "#009e73", OURS: "#8fd0bc"}
COLOURS |= {wireless.SAC: "#cc79a7", EPC: "#d55e00"}
MACHINES = times.published_machines()


def code_cells(scale: Darl1nScale) -> Planned:
    """Cells about codes."""
    return [
        lemma_1.cell(),
        *(coding.table_cell(each, trials=scale.trials, sets=scale.sets) for each in SCHEMES),
        coding.exact_cell(sets=scale.exact_sets),
        *coding.noise_cells(samples=scale.samples),
        *(
            times.cell(each, MACHINES, draws=scale.draws, rounds=scale.rounds)
            for each in times.SCHEMES
        ),
    ]


def _planned(trials: Sequence[Trial]) -> Planned:
    """The runs of the adversaries that some runs meet, and these."""
    return [trial.planned() for trial in (*adversaries(trials), *trials)]


def _swept(scale: Darl1nScale) -> list[Trial]:
    runs = [run for d in distances.DISTANCES for run in distances.fig6_trials(scale, d)]
    ends, more = distances.ENDS, scale.swept_seeds(distances.FIGURE)
    return [*runs, *(run for d in ends for run in distances.fig6_trials(scale, d, more))]


def _coded(scale: Darl1nScale) -> list[Trial]:
    return [run for scheme in TIMED for run in table_claims.coded_trials(scale, scheme)]


def judged(found: Darl1nFindings) -> Judgement:
    """Results by source; those about codes, and those of figures, if their cells are there."""
    return {**(_of_codes(found.results) if "codes" in found.whole else {}), **_of_learning(found)}


def _of_codes(results: Results) -> Judgement:
    return {
        "Sec. III": lemma_1.judge_lemma(results),
        "published numbers": table_claims.judge_published(results),
        "Table V, ours": table_claims.judge_table(results),
        "noise": table_claims.judge_noise(results),
        "Fig. 7, independent": time_claims.judge_figure(results, StragglerModel.BERNOULLI),
        "Fig. 7, fixed": time_claims.judge_figure(results, StragglerModel.FIXED),
        "Table VI": time_claims.judge_convergence(results, MACHINES),
        "Sec. VI-B3": time_claims.judge_guidelines(results),
    }


def _of_learning(found: Darl1nFindings) -> Judgement:
    scale, results = found.scale, found.results
    told: dict[str, Sequence[ClaimResult]] = {
        "Tables I to IV": learning_claims.judge_learning(results, scale)
    }
    if scaling.CELL in results:
        told["Fig. 2"] = scaling.judge_scaling(scale.timed_teams, results[scaling.CELL])
    told["Fig. 2(a, c, d)"] = learning_claims.judge_paces(results, scale)
    told["Fig. 3"] = learning_claims.judge_full_range(results, scale)
    told["Fig. 4(a)"] = [
        untested(
            "DARL1N learns best from a global reward, too.",
            "the paper defines neither that reward nor its variant's transitions",
        )
    ]
    if crossplay.CELL in results:
        told["Fig. 4(b)"] = crossplay.judge_crossplay(results, scale)
    if "fig5" in found.whole:
        told["Fig. 5"] = wireless.judge_wireless(results, scale)
    if "fig6" in found.whole:
        told["Fig. 6"] = distances.judge_distances(results, scale)
    told["Sec. VII"] = [
        *distances.judge_contact(results, scale),
        *distances.judge_halving(results, scale),
    ]
    told["Table VI, rewards"] = table_claims.judge_rewards(results, scale)
    return told


def _values(found: Darl1nFindings) -> Mapping[str, Any]:
    scale, results = found.scale, found.results
    values: dict[str, Any] = {}
    if "codes" in found.whole:
        values |= {
            "machines": MACHINES,
            "success": code_page.success_table(results),
            "variance": code_page.variance_table(results),
            "noise": code_page.noise_table(results),
            "simulated": scale.draws * scale.rounds,
            "times": code_page.times_table(results),
            "waiting": code_page.waiting_table(results),
            "limit": times.MAX_VARIANCE,
            "convergence": code_page.convergence_table(results, MACHINES),
        }
    swept = {world.name: len(world.seeds(scale)) for world in distances.WORLDS}
    values["swept"] = "; ".join(f"{name}: {count} seeds" for name, count in swept.items())
    more = [
        f"{team} ({len(scale.end_seeds(team))})"
        for team in scale.teams()
        if len(scale.end_seeds(team)) > len(scale.timed_seeds(team))
    ]
    values["ends"] = "; ".join(more) or "no team"
    values["Said"] = scale.said[0].upper() + scale.said[1:]
    if trained(results, scale):
        values["learning"] = learning_table(results, scale)
    if scaling.CELL in results:
        values["scaling"] = scaling.scaling_table(scale.timed_teams, results[scaling.CELL])
    if crossplay.CELL in results:
        values["crossplay"] = crossplay.crossplay_table(results)
    if scale.episodes and "fig5" in found.whole:
        values["wireless"] = wireless.wireless_table(results, scale)
    if "fig6" in found.whole:
        values["distances"] = distances.fig6_table(results, scale)
    if any(distances.compared(results, scale, world) for world in distances.WORLDS):
        values["contact"] = distances.contact_table(results, scale)
        values["halving"] = distances.halving_table(results, scale)
    if rewards := code_page.rewards_table(results, scale):
        values["rewards"] = rewards
    return values


def learning_table(results: Results, scale: Darl1nScale) -> str:
    """Tables I to IV: this reproduction's numbers next to the paper's."""
    every = trained(results, scale)
    by_task = {task: [team for team in every if team.task is task] for task in TASKS}
    return "\n".join(_of_task(results, scale, *each) for each in by_task.items() if each[1])


def _of_task(
    results: Results, scale: Darl1nScale, task: Darl1nTask, teams: Sequence[TeamSpec]
) -> str:
    rows = []
    for team in teams:
        learnt = curves(results, scale, team)
        fixed = fixed_return([learnt[method] for method in ENGINE_METHODS])
        for method in (*(name for name in METHODS if name in task.printed), OURS):
            ours = _measured(learnt.get(method), fixed)
            if method == OURS:
                rows += [[team.size.agents, method, "", *ours[:2], "", *ours[2:]]] * (
                    OURS in learnt
                )
                continue
            said = team.printed(method)
            row = [team.size.agents, method, f"{said.seconds:g}", *ours[:2], f"{said.reward:g}"]
            rows.append([*row, *ours[2:]])
    there = {team.size.agents: len(seeds(results, scale, team)) for team in teams}
    most = len(scale.seeds_of(task))
    few = [f"{found} with M = {agents}" for agents, found in there.items() if found < most]
    heads = ("M", "method", "converged, s: published", "ours", "to the fixed return, s")
    rest = ("reward: published", "ours", "at the end", "s an iteration")
    text = f"\n**Table {task.table}**: {task.name}\n\n" + table([*heads, *rest], rows)
    return text + (f"\n\nOf {most} seeds there are {', '.join(few)}." if few else "")


def _measured(curve: LearningCurve | None, fixed: float) -> tuple[str, ...]:
    """Times to convergence and to the fixed return, returns then and at the end, and pace."""
    if curve is None:
        return ("-",) * 5
    settled = curve.settled()
    when = (
        "-" if index is None else f"{curve.seconds[index]:.1f} ({curve.iterations[index]:.0f})"
        for index in (settled, curve.reached(fixed))
    )
    reward = "-" if settled is None else f"{curve.returns[settled]:.1f}"
    return (*when, reward, f"{curve.end:.1f}", f"{curve.iteration_s:.3f}")


def _draw(found: Darl1nFindings, directory: Path) -> None:
    scale, results = found.scale, found.results
    if "codes" in found.whole:
        code_page.draw_noise(results, directory / "noise.png")
        code_page.draw_times(results, directory / "times.png")
    if trained(results, scale):
        _draw_learning(results, scale, directory / "learning.png")
    if scaling.CELL in results:
        _draw_scaling(scale.timed_teams, results[scaling.CELL], directory / "scaling.png")
    if scale.episodes and "fig5" in found.whole:
        _draw_wireless(results, scale, directory / "wireless.png")
    if "fig6" in found.whole:
        _draw_distances(distances.fig6_curves(results, scale), directory / "distances.png")


def _draw_learning(results: Results, scale: Darl1nScale, path: Path) -> None:
    """Returns against processor seconds: a panel for each team."""
    teams = trained(results, scale)
    columns = 2 if len(teams) <= len(TASKS) else 4
    titles = [str(team).replace("_", " ") for team in teams]
    size = (max(11.0 / columns, 4.2), 3.1)
    with pictures.panels(path, titles, columns=columns, size=size, beneath=3) as every:
        for axes, team in zip(every, teams, strict=True):
            for method, curve in curves(results, scale, team).items():
                axes.plot(curve.seconds, curve.returns, color=COLOURS[method], label=method)
            axes.set(xlabel="processor seconds", ylabel="return of the learners' side")


def _draw_scaling(teams: Sequence[int], spent: JSON, path: Path) -> None:
    """Fig. 2: seconds of an iteration against M, both on logarithmic axes."""
    larger = scaling.judged(teams)
    with pictures.panels(path, [""], size=(5.5, 4.4)) as (axes,):
        axes.axvspan(teams[larger][0], teams[-1], color="0.93", label="growth fitted here")
        for method in (*ENGINE_METHODS, APART):
            seconds, line = spent[method], "--" if method == APART else "-"
            label = f"{method}, M^{growth(teams[larger], seconds[larger]).mean:.2f}"
            own = COLOURS[method.partition(",")[0]]
            axes.loglog(teams, medians(seconds), line, marker="o", color=own, label=label)
        axes.set_xticks(teams, [str(agents) for agents in teams])
        axes.minorticks_off()
        axes.set(xlabel="agents M", ylabel="processor seconds of an iteration")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _draw_wireless(results: Results, scale: Darl1nScale, path: Path) -> None:
    """Fig. 5: returns against episodes for each z; thin lines for draws, thick ones for means."""
    of = partial(wireless.found, results, scale)
    titles = [f"z = {z}" for z in wireless.DEADLINES]
    with pictures.panels(path, titles, size=(4.5, 3.6), beneath=3) as every:
        for axes, z in zip(every, wireless.DEADLINES, strict=True):
            random = of(wireless.SAC, z, "random").mean()
            axes.axhline(random, color="#9aa5b1", linestyle="--", label="random play")
            for method in (wireless.SAC, DARL1N):
                (episodes,), returns = of(method, z, "episodes")[:1], of(method, z, "returns")
                axes.plot(episodes, returns.T, color=COLOURS[method], linewidth=0.6, alpha=0.35)
                axes.plot(episodes, returns.mean(axis=0), color=COLOURS[method], label=method)
            axes.set(xlabel="episodes learnt from", ylabel="return of all users", xscale="log")
            axes.set_ylim(bottom=0.0)


def _draw_distances(swept: Iterable[LearningCurve], path: Path) -> None:
    """Fig. 6: seconds of an iteration and the final return against d."""
    labels = {
        "processor seconds of an iteration": [curve.iteration_s for curve in swept],
        "return of the good side at the end": [curve.end for curve in swept],
    }
    with pictures.panels(path, ["", ""], size=(4.5, 3.6)) as every:
        for axes, (label, values) in zip(every, labels.items(), strict=True):
            axes.semilogx(distances.DISTANCES, values, marker="o", color=COLOURS[DARL1N])
            axes.set_xticks(distances.DISTANCES, [f"{d:g}" for d in distances.DISTANCES])
            axes.minorticks_off()
            axes.set(xlabel="neighbour distance d", ylabel=label)
        every[0].set_ylim(bottom=0.0)


PAPER = Paper(
    folder="001-darl1n",
    package=PACKAGE,
    scales=SCALES,
    parts={
        "codes": code_cells,
        "ising": lambda scale: _planned(learners(scale, ISING)),
        "food": lambda scale: _planned(learners(scale, FOOD)),
        "grassland": lambda scale: _planned(learners(scale, GRASSLAND)),
        "battle": lambda scale: _planned(learners(scale, BATTLE)),
        "epc": lambda scale: [each.cell() for each in populations(scale)],
        "fig2": lambda scale: [scaling.cell(scale.timed_teams, scale.timed)],
        "fig3": lambda scale: _planned(learning_claims.full_range_trials(scale)),
        "fig4": crossplay.cells,
        "fig5": wireless.cells,
        "fig6": lambda scale: _planned(_swept(scale)),
        "contact": lambda scale: _planned(distances.contact_trials(scale)),
        "table6": lambda scale: _planned(_coded(scale)),
    },
    judged=judged,
    modules=("fullrank.algorithms.darl1n", "fullrank_darl1n.paper"),
    values=_values,
    draw=_draw,
)
