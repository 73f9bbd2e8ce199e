"""The part of the page about training, and its pictures."""

from pathlib import Path

from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import (
    crossplay,
    epc_runs,
    figures,
    neighbour_distance,
    scaling,
    tables,
    wireless,
)
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import SMOOTHED, WAY
from fullrank_reproduction.darl1n.training.published import EPISODES, SETTLED, WINDOW


def draw(results: Results, budget: Darl1nBudget, directory: Path) -> None:
    """Draw all pictures."""
    figures.draw_learning(results, budget, directory / "learning.png")
    figures.draw_scaling(budget.timed_teams, results[scaling.CELL], directory / "scaling.png")
    figures.draw_wireless(results, budget, directory / "wireless.png")
    figures.draw_distances(neighbour_distance.curves(results, budget), directory / "distances.png")


def text(results: Results, budget: Darl1nBudget) -> str:
    """The part as Markdown, with headings from the second level on."""
    sections = (_learning, _iteration_times, _crossplay, _wireless, _distances)
    return "".join(section(results, budget) for section in sections)


def _learning(results: Results, budget: Darl1nBudget) -> str:
    batch = epc_runs.BATCH
    return f"""## Tables I to IV: learning curves and time to converge

{budget.said[0].upper()}{budget.said[1:]}; {EPISODES} episodes without exploration at every
evaluation, returns of the good side. Seconds are those of a processor that computes all units in
turn; the paper's DARL1N has a machine for each learner, its MADDPG and MFAC have one. In
brackets: iterations.

*Converged* is the paper's criterion: over {WINDOW} iterations the variance of the returns, means
over the seeds, is at most {SETTLED:.0%} of their mean's size. It compares a variance with a mean,
and so depends on the unit of rewards; a method that learns nothing meets it too. The *fixed return*
of a team lies {WAY:.0%} of the way up from the lowest beginning to the best end of any method; the
mean of {SMOOTHED} evaluations must reach it. *At the end*: mean of the last {WINDOW} iterations.

*epc* begins a team with networks of the team before it in the table, *epc-scratch* with nothing; of
the first team they are one. A team has as many runs as there are seeds, which share parents from
the second team on. They are as long as the others', but with minibatches of {batch}, as the
authors' in Ising, since an update costs up to twenty times one of MADDPG. Seconds are those of the
team's own stage, as the paper's must be, in which 9 spins take 101 s and 16 take 26 s.

In the contests only the good side learns, against adversaries of a MADDPG run in which both sides
learnt before, others for each seed, and the same for all methods. The authors' own are published
for M = 6 alone, so that rewards are shown and not judged. EPC's critics judge observations and
actions of the good side, the other methods' also the actions of the adversaries; and its parents
are chosen by returns against adversaries that differ.

![Returns against seconds](learning.png)
{tables.of_learning(results, budget)}

"""


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
