"""What [DARL1N, Sec. VI-A] says of training, checked against our runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from fullrank.reproduction.darl1n.readings import Found
from fullrank.reproduction.darl1n.training import scaling
from fullrank.reproduction.darl1n.training.convergence import Curve, fixed_return
from fullrank.reproduction.darl1n.training.crossplay import judge_crossplay
from fullrank.reproduction.darl1n.training.distances import judge_distances
from fullrank.reproduction.darl1n.training.effort import Effort
from fullrank.reproduction.darl1n.training.plan import Team, curves, teams
from fullrank.reproduction.darl1n.training.published import DARL1N, FOOD, ISING
from fullrank.reproduction.darl1n.training.scaling import judge_scaling
from fullrank.reproduction.darl1n.training.wireless import judge_wireless
from fullrank.reproduction.verdicts import Held, Verdict, judge

ALIKE = 0.05
"""Share of the best return within which others are as good."""

Curves: TypeAlias = Mapping[str, Curve]
"""By method."""

Against: TypeAlias = Callable[[Curves], list[str]]
"""What of a team's curves speaks against a claim."""


def judged(found: Found, effort: Effort) -> dict[str, list[Verdict]]:
    """By what was judged."""
    return {
        "Tables I to IV": judge_learning(found, effort),
        "Fig. 2": judge_scaling(effort.timed_teams, found[scaling.CELL]),
        "Fig. 4(b)": judge_crossplay(found, effort),
        "Fig. 5": judge_wireless(found, effort),
        "Fig. 6": judge_distances(found, effort),
    }


def judge_learning(found: Found, effort: Effort) -> list[Verdict]:
    """Tables I to IV."""
    every = teams(effort)
    ising = [team for team in every if team.task is ISING]
    food = [team for team in every if team.task is FOOD]
    return [
        _in_full(found, effort, "Ising: all methods end alike with 9 agents.", ising[:1], _alike),
        _in_full(
            found,
            effort,
            "DARL1N converges first, of those trained here, by the paper's criterion.",
            every,
            _settles_later,
        ),
        _in_full(found, effort, "It reaches the fixed return first.", every, _reaches_later),
        _in_full(
            found,
            effort,
            "Food Collection: MADDPG and MFAC end below DARL1N with 12 agents and more.",
            food[2:],
            _ends_below,
        ),
        Verdict(
            claim="Grassland and Adversarial Battle: the rewards of the tables.",
            held=Held.NOT_TESTABLE,
            reason="they depend on the authors' adversaries, which are published for M = 6 alone; "
            "ours are other ones",
        ),
    ]


def _in_full(
    found: Found, effort: Effort, claim: str, judged: Sequence[Team], against: Against
) -> Verdict:
    """Judged of the teams that were trained as the paper's."""
    whole = [team for team in judged if effort.whole(team.size)]
    if not whole:
        return Verdict(claim=claim, held=Held.NOT_TESTABLE, reason=effort.short)
    speaking = [
        f"{team}: {text}" for team in whole for text in against(curves(found, effort, team))
    ]
    return judge(claim, speaking, grounds=f"{len(whole)} teams, {effort.seeds} seeds")


def _alike(learnt: Curves) -> list[str]:
    best = max(curve.end for curve in learnt.values())
    return [
        f"{method} ends at {curve.end:.1f}, the best at {best:.1f}"
        for method, curve in learnt.items()
        if curve.end < best - ALIKE * abs(best)
    ]


def _settles_later(learnt: Curves) -> list[str]:
    return _sooner({method: curve.second(curve.settled()) for method, curve in learnt.items()})


def _reaches_later(learnt: Curves) -> list[str]:
    fixed = fixed_return(list(learnt.values()))
    return _sooner({method: curve.second(curve.reached(fixed)) for method, curve in learnt.items()})


def _sooner(times: Mapping[str, float]) -> list[str]:
    """Methods that are there before DARL1N; all are if it never is."""
    return [
        f"{method} after {seconds:.0f} s, DARL1N after {times[DARL1N]:.0f}"
        for method, seconds in times.items()
        if method != DARL1N and seconds <= times[DARL1N]
    ]


def _ends_below(learnt: Curves) -> list[str]:
    own = learnt[DARL1N].end
    return [
        f"{method} ends at {curve.end:.1f}, DARL1N at {own:.1f}"
        for method, curve in learnt.items()
        if method != DARL1N and curve.end >= own
    ]
