"""A point of Fig. 8 of [DMCAF] by services: Qmix takes its curve's updates, to the same bits."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from fullrank.cli.policies import trained
from fullrank.common.seeding import derive
from fullrank.common.types import JSON
from fullrank.config.tree import RunConfig
from fullrank.training.evaluation import Greedy, evaluate_and_close
from fullrank.wiring.plugins import environment_of
from fullrank_dmcaf.learning import STEPS, course_cell, course_config, evaluations
from fullrank_dmcaf.speed import SYSTEMS, DmcafScale, length_name
from fullrank_papers.cells import Cell, Later, Results
from fullrank_papers.claims import ClaimResult, Strength, Whose, judge
from fullrank_papers.runs import observe
from fullrank_papers.virtual import CHANNELS, COPIES

POINT: Final = "served-course"


def served_cells(scale: DmcafScale) -> list[Later]:
    """Qmix's first curve, and its last point by services with as many updates."""
    return [
        Later(
            name=POINT,
            needs=(length_name(name),),
            make=partial(_served_cell, name, scale),
            weight=120.0,
        )
        for name in list(scale.learnt)[:1]
    ]


def _served_cell(name: str, scale: DmcafScale, results: Results) -> Cell:
    system, seed = SYSTEMS[0], scale.seeds[0]
    asked = evaluations(scale, name, system, seed, scale.learnt[name])
    curve = course_cell(name, system, seed, asked, results)
    compute = partial(_served_point, curve, course_config(name, system, seed), scale.evaluated)
    return Cell(name=POINT, settings=curve.settings, compute=compute)


def _served_point(curve: Cell, config: RunConfig, episodes: int) -> JSON:
    """Mean greedy returns of the policies at the end, of a curve and of a run by services."""
    end, found = dict(zip(CHANNELS, curve.compute()[STEPS][-1], strict=True)), list[float]()
    config = replace(config, iterations=int(end["iteration"]))

    def told(run_dir: Path) -> None:
        act = Greedy(trained(run_dir, config).algorithm.actor)
        environment = environment_of(config, copies=min(COPIES, episodes))
        seed = derive(config.seed, "virtual_evaluation")
        found.append(float(evaluate_and_close(environment, act, episodes, seed).returns.mean()))

    observe(config, told=told)
    equal = found[0] == end["return_mean"]
    return {"curve": end["return_mean"], "services": found[0], "equal": equal}


def judge_served(results: Results, scale: DmcafScale) -> list[ClaimResult]:
    """Judge D11: services and virtual time commit the same bits."""
    told = []
    for name in list(scale.learnt)[:1]:
        found, expected = (results[POINT][each] for each in ("services", "curve"))
        said = f"{found:.6g}, in virtual time {expected:.6g}"
        told.append(
            judge(
                f"D11: Qmix on {name} by services earns what its curve ends with, to the bit.",
                [] if results[POINT]["equal"] else [said],
                grounds=said,
                strength=Strength("one run by services of this host"),
                whose=Whose.OURS,
            )
        )
    return told
