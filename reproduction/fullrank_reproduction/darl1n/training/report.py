"""The part of the page about training, and its pictures."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from fullrank.common.types import JSON
from fullrank_reproduction import pictures
from fullrank_reproduction.darl1n.published import LEARNERS
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import (
    coded_rewards,
    contact_distance,
    crossplay,
    epc_runs,
    halved_distance,
    neighbour_distance,
    scaling,
    tables,
    wireless,
)
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import SMOOTHED, WAY, LearningCurve
from fullrank_reproduction.darl1n.training.halving import AVERAGED
from fullrank_reproduction.darl1n.training.neighbour_distance import DISTANCES
from fullrank_reproduction.darl1n.training.published import (
    DARL1N,
    EPISODES,
    SCRATCH,
    SETTLED,
    TASKS,
    WINDOW,
)
from fullrank_reproduction.darl1n.training.runs import TeamSpec, curves, trained
from fullrank_reproduction.darl1n.training.scaling import (
    APART,
    TIMED,
    growth,
    judged,
    medians,
)


def draw(results: Results, budget: Darl1nBudget, directory: Path) -> None:
    """Draw the pictures of the results that are there."""
    if trained(results, budget):
        draw_learning(results, budget, directory / "learning.png")
    if scaling.CELL in results:
        draw_scaling(budget.timed_teams, results[scaling.CELL], directory / "scaling.png")
    if wireless.computed(results, budget):
        draw_wireless(results, budget, directory / "wireless.png")
    if swept := neighbour_distance.curves(results, budget):
        draw_distances(swept, directory / "distances.png")


def text(results: Results, budget: Darl1nBudget) -> str:
    """The part as Markdown, with headings from the second level on."""
    sections = {
        _learning: bool(trained(results, budget)),
        _iteration_times: scaling.CELL in results,
        _crossplay: crossplay.CELL in results,
        _wireless: wireless.computed(results, budget),
        _distances: bool(neighbour_distance.curves(results, budget)),
        _contact: contact_distance.any_compared(results, budget),
        _rewards: bool(coded_rewards.returns(results, budget)),
    }
    return "".join(section(results, budget) for section, there in sections.items() if there)


def _learning(results: Results, budget: Darl1nBudget) -> str:
    batch, grown = epc_runs.BATCH, _grown(budget)
    return f"""## Tables I to IV: learning curves and time to converge

{budget.said[0].upper()}{budget.said[1:]}; {EPISODES} episodes without exploration at every
evaluation, returns of the good side. Seconds are those of a processor that computes all units in
turn; the paper's DARL1N has a machine for each learner, its MADDPG and MFAC have one. Claims about
the paper's machines divide DARL1N's seconds by M. MADDPG and MFAC train for as many iterations as
the authors' did, if these are not more. In brackets: iterations.

*Converged* is the paper's criterion: over {WINDOW} iterations the variance of the returns, means
over the seeds, is at most {SETTLED:.0%} of their mean's size. It compares a variance with a mean,
and so depends on the unit of rewards; a method that learns nothing meets it too. The *fixed return*
of a team lies {WAY:.0%} of the way up from the lowest beginning to the best end of any method; the
mean of {SMOOTHED} evaluations must reach it. *At the end*: mean of the last {WINDOW} iterations.

*epc* begins a team with networks of the team before it in the table, *epc-scratch* with nothing; of
the first team they are one. A team has as many runs as there are seeds, which share parents from
the second team on. They are as long as DARL1N's, but with minibatches of {batch}, as the
authors' in Ising, since an update costs up to twenty times one of MADDPG. Seconds are those of the
team's own stage, as the paper's must be, in which 9 spins take 101 s and 16 take 26 s.{grown}

In the contests only the good side learns, against adversaries of a MADDPG run in which both sides
learnt before, others for each seed, and the same for all methods. The authors' own are published
for M = 6 alone, so that rewards are shown and not judged. EPC's critics judge observations and
actions of the good side, the other methods' also the actions of the adversaries; and its parents
are chosen by returns against adversaries that differ.

![Returns against seconds](learning.png)
{tables.of_learning(results, budget)}

"""


def _grown(budget: Darl1nBudget) -> str:
    if budget.grown is None:
        return ""
    stages = "; ".join(
        f"{task.name} {', '.join(str(size.iterations) for size in budget.grown_sizes(task))}"
        for task in TASKS
        if budget.grown_sizes(task)
    )
    return f"\nHere EPC's stages have these iterations: {stages}. A stage of one shows its start."


def _iteration_times(results: Results, budget: Darl1nBudget) -> str:
    return f"""## Fig. 2: time of an iteration

Food Collection at one density (24 agents and pieces of food in a square of side 5), observations as
long in any team, batch {scaling.BATCH}; processor seconds, medians of {budget.timed} iterations,
methods and teams in turns. As the paper has it, DARL1N has *a machine for each learner*: its time
is that of the slowest, and of Adam and the targets; network time is left out. Growth:
mean exponent of M over these rounds, with its 95 % interval. EPC's seconds are in the tables above;
its work grows as M³, and an iteration of 96 agents would take minutes.

![Seconds of an iteration against M](scaling.png)

{scaling.of_scaling(budget.timed_teams, results[scaling.CELL])}

"""


def _crossplay(results: Results, budget: Darl1nBudget) -> str:
    return f"""## Fig. 4(b): good agents of one method against adversaries of another

Adversarial Battle, {EPISODES} episodes of each pair; both sides of each method learnt against each
other, those of EPC in teams that grew. Returns between the least (0) and the most (1) of the side
in any episode, mean and standard deviation over opponents and episodes.

{crossplay.of_crossplay(results)}

"""


def _wireless(results: Results, budget: Darl1nBudget) -> str:
    return f"""## Fig. 5: wireless

{wireless.said(budget)}

![Returns against episodes](wireless.png)

{wireless.of_wireless(results, budget)}

"""


def _distances(results: Results, budget: Darl1nBudget) -> str:
    return f"""## Fig. 6: the neighbour distance

DARL1N in Grassland, M = 6, grass pays 10 and an adversary's touch costs 100.

![Time and return against the distance](distances.png)

{neighbour_distance.of_distances(results, budget)}
"""


def _contact(results: Results, budget: Darl1nBudget) -> str:
    return f"""
## Sec. VII: the contact distance

DARL1N with `environment.distance = "contact"` and with fixed distances, `default` the authors' for
the team; {budget.said}. *At the end*: mean of the evaluations in the last
third of the iterations. *Share*: the return gained in training, of that which the best fixed
distance gains, with Student's 95 % interval of the paired differences.

{contact_distance.of_distances(results, budget)}

## Sec. VII: a distance chosen by successive halving

Of the fixed distances the better half, rounded up, goes on at each rung, by the mean of the last
{AVERAGED} evaluations; the last one trains to the end. *Each seed alone*: a seed's own returns
decide; *the mean of the seeds* decides for all. *Rungs*: evenly spaced over the whole run, with
which the claims are judged, or over its first or second half. *Runs*: iterations of all distances,
in multiples of one run's.

{halved_distance.of_halving(results, budget)}
"""


def _rewards(results: Results, budget: Darl1nBudget) -> str:
    return f"""
## Table VI: rewards

Food Collection, M = {coded_rewards.TEAM.agents}, on {LEARNERS} learners that draw samples of their
own, committed at rank M; {budget.coded} iterations, batch {coded_rewards.BATCH}, arrivals in random
order. The published rewards are those at eta = 0 / 0.2 / 0.5 after as many iterations as converge.

{coded_rewards.of_rewards(results, budget)}
"""


COLOURS = {
    "maddpg": "#0072b2",
    "mfac": "#e69f00",
    "epc": "#d55e00",
    "epc-scratch": "#56b4e9",
    "darl1n": "#009e73",
    "sac": "#cc79a7",
}


def draw_learning(results: Results, budget: Darl1nBudget, path: Path) -> None:
    """Returns against processor seconds: a row for each task, a column for each size."""
    every = trained(results, budget)
    columns = 2 if len(every) <= len(TASKS) else 4
    lines = -(-len(every) // columns)
    figure = pictures.blank(width=max(11.0, 4.2 * columns), height=3.1 * lines + 0.6)
    cells = figure.subplots(lines, columns, squeeze=False)
    for axes, team in zip(cells.flat, every, strict=False):
        _draw_team(axes, results, budget, team)
    for axes in cells.flat[len(every) :]:
        axes.set_axis_off()
    drawn = {str(line.get_label()): line for axes in figure.axes for line in axes.lines}
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=len(drawn))
    figure.savefig(path, dpi=pictures.DPI)


def _draw_team(axes: Axes, results: Results, budget: Darl1nBudget, team: TeamSpec) -> None:
    for method, curve in curves(results, budget, team).items():
        line = "--" if method == SCRATCH else "-"  # EPC's own cell with the fewest agents
        own = COLOURS[method]
        axes.plot(curve.seconds, curve.returns, line, color=own, linewidth=1.8, label=method)
    axes.set_title(str(team).replace("_", " "), fontsize=11)
    axes.set_xlabel("processor seconds")
    axes.set_ylabel("return of the learners' side")
    pictures.tidy(axes)


def draw_scaling(teams: Sequence[int], spent: JSON, path: Path) -> None:
    """Fig. 2: seconds of an iteration against M, both on logarithmic axes."""
    larger = judged(teams)
    figure = pictures.blank(width=5.5, height=4.4)
    axes = figure.subplots()
    axes.axvspan(teams[larger][0], teams[-1], color="0.93", label="growth fitted here")
    for method in TIMED:
        seconds = spent[method]
        label = f"{method}, M^{growth(teams[larger], seconds[larger]).mean:.2f}"
        own, line = COLOURS[method.partition(",")[0]], "--" if method == APART else "-"
        axes.loglog(teams, medians(seconds), line, marker="o", color=own, label=label)
    axes.set_xticks(teams, [str(agents) for agents in teams])
    axes.minorticks_off()
    axes.set_xlabel("agents M")
    axes.set_ylabel("processor seconds of an iteration")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    pictures.tidy(axes)
    figure.savefig(path, dpi=pictures.DPI)


def draw_wireless(results: Results, budget: Darl1nBudget, path: Path) -> None:
    """Fig. 5: returns against episodes for each z; thin lines for draws, thick ones for means."""
    figure = pictures.blank(width=9, height=3.8)
    for axes, deadline in zip(figure.subplots(1, 2), wireless.DEADLINES, strict=True):
        random = wireless.earned(results, budget, deadline)[wireless.RANDOM].mean()
        axes.axhline(random, color="#9aa5b1", linestyle="--", label="random play")
        for method, label in ((wireless.SAC, "SAC"), (DARL1N, "DARL1N")):
            episodes, returns = wireless.curve(results, budget, method, deadline)
            colour = COLOURS[method]
            axes.plot(episodes, returns.T, color=colour, linewidth=0.6, alpha=0.35)
            axes.plot(episodes, returns.mean(axis=0), color=colour, linewidth=1.8, label=label)
        axes.set_title(f"z = {deadline}", fontsize=11)
        axes.set_xlabel("episodes of experience")
        axes.set_ylabel("return of all users")
        axes.set_ylim(bottom=0.0)
        pictures.tidy(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.savefig(path, dpi=pictures.DPI)


def draw_distances(swept: Sequence[LearningCurve], path: Path) -> None:
    """Fig. 6: seconds of an iteration and the final return against d."""
    figure = pictures.blank(width=9, height=3.6)
    left, right = figure.subplots(1, 2)
    for axes, values, label in (
        (left, [curve.iteration_s for curve in swept], "processor seconds of an iteration"),
        (right, [curve.end for curve in swept], "return of the good side at the end"),
    ):
        axes.plot(DISTANCES, values, marker="o", color=COLOURS[DARL1N], linewidth=1.8)
        axes.set_xscale("log")
        axes.set_xticks(DISTANCES, [f"{distance:g}" for distance in DISTANCES])
        axes.minorticks_off()
        axes.set_xlabel("neighbour distance d")
        axes.set_ylabel(label)
        pictures.tidy(axes)
    left.set_ylim(0.0, 1.1 * max(curve.iteration_s for curve in swept))
    figure.savefig(path, dpi=pictures.DPI)
