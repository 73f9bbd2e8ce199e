"""Paper 003: its parts, claims, tables and pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fullrank.environments import make_environment
from fullrank.environments.capabilities import state_size
from fullrank_dmcaf import learning, memory, speed, waiting
from fullrank_dmcaf.speed import PACKAGE, SCALES, SCENARIOS, DmcafScale
from fullrank_papers import claims
from fullrank_papers.claims import EXACT, ClaimResult, judge, untested
from fullrank_papers.paper import Findings, Paper, Planned

DmcafFindings: TypeAlias = Findings[DmcafScale]


def _cells(scale: DmcafScale) -> Planned:
    trained = memory.cell(iterations=scale.trained, episodes=scale.episodes)
    waits = waiting.cell(steps=scale.waits)
    return [waits, *speed.cells(scale), trained, *learning.cells(scale)]


def judge_interfaces() -> ClaimResult:
    """Judge claim D1: SMAC-lite offers the interface of Table I on all four maps."""
    wrong = []
    for name, scenario in SCENARIOS.items():
        environment = make_environment("smac_lite", copies=1, map=name)
        agents = environment.agents
        ours = (
            agents[0].action.size,
            len(agents),
            state_size(environment),
            agents[0].observation_size,
        )
        theirs = (scenario.actions, scenario.agents, scenario.state, scenario.observation)
        environment.close()
        if ours != theirs:
            wrong.append(f"{name} has {ours}, not {theirs}")
    return judge(
        "D1: actions, agents, state and observation of 3m, 8m, 2s3z, 5m_vs_6m (Table I).",
        wrong,
        grounds="SMAC-lite has the same on all four",
        strength=EXACT,
    )


def judged(found: DmcafFindings) -> dict[str, Sequence[ClaimResult]]:
    """Results by source."""
    scale, results = found.scale, found.results
    d4 = untested(
        "D4: with equal interactions AW and AWL learn sooner than Qmix (Fig. 8).",
        "needs learning curves of several seeds, which `--scale standard` has",
    )
    return {
        "Table I": [judge_interfaces()],
        "Table III and Fig. 7": speed.judge_speed(results, scale.maps),
        "Fig. 8": [
            *(learning.judge_learning(results, scale) or [d4]),
            untested("D5: COMA is poor everywhere (Fig. 8).", "COMA is not built"),
        ],
        "Fig. 9": [
            untested(
                "D6: more environments earn more in MaCA (Fig. 9).",
                'the game\'s core is encrypted, and "hierarchical Qmix" is not defined',
            )
        ],
        "Fig. 4": [memory.judge_memory(results[memory.CELL])],
        "Sec. III": [waiting.judge_waiting(results[waiting.CELL])],
    }


def _values(found: DmcafFindings) -> Mapping[str, Any]:
    if not found.whole:
        return {"claims": ""}
    scale, results = found.scale, found.results
    fastest, slowest = speed.qmix_iteration_s(results, scale.maps)
    values = {
        "claims": claims.as_list(judged(found)),
        "speed": speed.table(results, scale.maps),
        "waiting": waiting.table(results[waiting.CELL]),
        "fastest": fastest,
        "slowest": slowest,
        "played": scale.episodes,
    }
    return values | ({"curves": ""} if scale.learnt else {})


def _draw(found: DmcafFindings, directory: Path) -> None:
    if not found.whole:
        return
    scale, results = found.scale, found.results
    speed.draw(results, scale.maps, directory / "speed.png")
    waiting.draw(results[waiting.CELL], directory / "waiting.png")
    memory.draw(results[memory.CELL], directory / "memory.png")
    if scale.learnt:
        learning.draw(results, scale, directory / "learning.png")


PAPER = Paper(
    folder="003-dmcaf",
    package=PACKAGE,
    scales=SCALES,
    parts={"all": _cells},
    values=_values,
    draw=_draw,
)
