"""The reproduction of [DMCAF]: cells, then pictures, results of the claims and the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fullrank.common.types import JSON
from fullrank.environments import make_environment
from fullrank.environments.capabilities import state_size
from fullrank_reproduction import claim_results
from fullrank_reproduction.cells import Cell, CellOrigin, run
from fullrank_reproduction.claim_results import EXACT, ClaimResult, judge, untested
from fullrank_reproduction.dmcaf import learning, memory, speed, waiting
from fullrank_reproduction.dmcaf.published import SCENARIOS
from fullrank_reproduction.dmcaf.speed import Watch

PAGE = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class DmcafScale:
    """Scale of the reproduction."""

    name: str
    maps: tuple[str, ...]
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
    seeds: int = 0
    """Learning curves of each system."""


SMOKE = DmcafScale(
    name="smoke",
    maps=tuple(SCENARIOS),
    iterations=8,
    trained=250,
    episodes=200,
    waits=20_000,
)
"""Takes minutes on two cores; no learning curves."""

STANDARD = DmcafScale(
    name="standard",
    maps=tuple(SCENARIOS),
    iterations=40,
    trained=800,
    episodes=1_000,
    waits=200_000,
    learnt=("3m", "2s3z"),
    steps=100_000,
    seeds=5,
)
"""Takes most of a day on two cores."""

SCALES = {scale.name: scale for scale in (SMOKE, STANDARD)}


def first_cells(scale: DmcafScale) -> list[Cell]:
    """Cells that need no result of others, quick ones first."""
    lengths = [speed.length_cell(name) for name in scale.maps]
    curves = [
        cell
        for name in scale.learnt
        for cell in learning.cells(name, steps=scale.steps, seeds=scale.seeds)
    ]
    trained = memory.cell(iterations=scale.trained, episodes=scale.episodes)
    return [waiting.cell(steps=scale.waits), *lengths, trained, *curves]


def later_cells(scale: DmcafScale, results: Mapping[str, JSON], watch: Watch) -> list[Cell]:
    """Cells of the services, whose emulated times follow from the lengths of episodes.

    Args:
        scale: The scale.
        results: Results of ``first_cells``; lengths that are missing count as 1.
        watch: Trains on real services.
    """
    return [
        cell
        for name in scale.maps
        for cell in speed.cells(
            name,
            results.get(f"length-{name}", {"steps": 1.0})["steps"],
            iterations=scale.iterations,
            watch=watch,
        )
    ]


def work(scale: DmcafScale, watch: Watch) -> float:
    """Sum of the weights of all cells."""
    return sum(cell.weight for cell in (*first_cells(scale), *later_cells(scale, {}, watch)))


def reproduce(
    scale: DmcafScale,
    directory: Path,
    *,
    watch: Watch,
    done: Callable[[Cell, CellOrigin], None],
) -> Path:
    """Compute missing cells, then write pictures and the page; returns its path.

    Args:
        scale: The scale.
        directory: Directory of results, pictures and page; existing results are reused.
        watch: Trains on real services.
        done: Called with each cell when its result is available.
    """
    results = run(first_cells(scale), directory, done=done)
    results |= run(later_cells(scale, results, watch), directory, done=done)
    speed.draw(results, scale.maps, directory / "speed.png")
    waiting.draw(results[waiting.CELL], directory / "waiting.png")
    memory.draw(results[memory.CELL], directory / "memory.png")
    if scale.learnt:
        path = directory / "learning.png"
        learning.draw(results, scale.learnt, seeds=scale.seeds, path=path)
    path = directory / PAGE
    path.write_text(_page(scale, results), encoding="utf-8")
    return path


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


def _judged(scale: DmcafScale, results: Mapping[str, JSON]) -> dict[str, Sequence[ClaimResult]]:
    """Results by source."""
    learnt = learning.judge_learning(results, scale.learnt, seeds=scale.seeds)
    if not learnt:
        reason = "needs learning curves of several seeds, which `--scale standard` has"
        learnt = [
            untested(
                "D4: with equal interactions AW and AWL learn sooner than Qmix (Fig. 8).", reason
            )
        ]
    return {
        "Table I": [judge_interfaces()],
        "Table III and Fig. 7": speed.judge_speed(results, scale.maps),
        "Fig. 8": [
            *learnt,
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


def _page(scale: DmcafScale, results: Mapping[str, JSON]) -> str:
    return f"""# DMCAF [DMCAF], reproduced ({scale.name} scale)

In DMCAF actors step games, workers choose for several actors at once, and a learner updates the
model beside them. This page is written by the command, which keeps what it has computed:

```console
$ fullrank reproduce dmcaf                     # minutes on two cores
$ fullrank reproduce dmcaf --scale standard    # with learning curves; most of a day
```

The systems are the topologies `episode` (Qmix), `aw` and `awl` of `fullrank train --topology`, on
real services. **Game processes and updates are emulated by times**: every step of a worker's actors
sleeps, and every update does. The games are those of SMAC-lite, a model of SMAC's battles: no
number here is one of StarCraft II.

## Claims

{claim_results.as_list(_judged(scale, results))}

{_speed(scale, results)}
{_rest(scale, results)}"""


def _speed(scale: DmcafScale, results: Mapping[str, JSON]) -> str:
    fastest, slowest = speed.qmix_iteration_s(results, scale.maps)
    return f"""## Table III and Fig. 7: collection and updates

An iteration of Qmix, one episode and one update, takes {speed.ITERATION_S:g} s. The share p of it
that is playing is solved from the paper's AW, which plays 4 episodes at once and then learns from
each of them, in p + 4 (1 - p) of that time; AW here therefore restates its input and is not judged.
AWL is a prediction: 4 collectors of 3 copies, and a learner that updates once for every
{speed.PER_UPDATE["awl"]} episodes, a number that the paper does not state. Episodes collected, Qmix
= 1:

{speed.table(results, scale.maps)}

Here an iteration of Qmix took {fastest:.2f} to {slowest:.2f} s, emulated times included; its speed
is counted as one episode in {speed.ITERATION_S:g} s, so that a busy machine does not flatter AWL.
The last column is what AWL could collect if nothing but playing by 12 actors, or learning, took
time. Copies of a block wait for the longest of its episodes, in AW and AWL alike.

![Collection and updates](speed.png)
"""


def _rest(scale: DmcafScale, results: Mapping[str, JSON]) -> str:
    curves = f"""
## Fig. 8: learning

{scale.seeds} seeds of {scale.steps:,} environment steps; win rates while exploring. An iteration
is one update: Qmix makes one for each episode, AW for 4 and AWL for 12.

![Learning curves](learning.png)
"""
    return f"""## Actors that wait for each other

Time of a step of n actors in lockstep in that of an actor by itself, in virtual time over
{scale.waits:,} steps:

{waiting.table(results[waiting.CELL])}

![Gain of ready-first over lockstep](waiting.png)

## Fig. 4: hidden states

A team trained for {scale.trained} iterations on `3m` plays the same {scale.episodes} episodes with
hidden states of each copy's own, and with the state of the copy beside it. The paper mixes while
it learns; here a team that has learnt without is played. A battle is mostly seen from one
observation, so that little is lost; play does not fall to chance.

![Returns with own and mixed hidden states](memory.png)
{curves * bool(scale.learnt)}"""
